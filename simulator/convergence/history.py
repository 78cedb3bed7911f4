"""What a unit's tables promised at every sequence, so that any view can be held to it."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvcompass.index import ShardTables
from kvcompass.index.frozen_shard import FrozenShard
from kvcompass.index.patches import Patches

Place: TypeAlias = tuple[int, int]
"""Table and slot of a worker."""


class History:
    """Of one incarnation of a unit: what each change set, by the sequence at which views have it."""

    def __init__(self) -> None:
        self.changes: list[tuple[Place, dict[int, int] | None]] = []
        """Tiers that keys of a worker have from there on. None: of what it had, nothing is promised."""
        self.sequences: list[int] = []
        """Of each change, ascending."""
        self.cleared: set[Place] = set()
        """Workers whose lease ended at some time, and"""
        self.left_out: set[Place] = set()
        """those of whom the first snapshot for all need not have told all."""
        self.is_settled = False
        """That snapshot was given."""

    def add(self, place: Place, tiers: dict[int, int] | None, sequence: int) -> None:
        """A view that is at this sequence has the change."""
        self.changes.append((place, tiers))
        self.sequences.append(sequence)


class Promises:
    """What a view must know, as it moves along the histories of the units that it follows."""

    def __init__(self) -> None:
        self.tiers: dict[Place, dict[int, int]] = {}
        """By worker and key; no tier is none."""
        self._history: History | None = None
        self._sequence = 0
        self._changes = 0

    def move(self, history: History, sequence: int) -> None:
        """The view is at a sequence of a unit now."""
        if history is not self._history or sequence < self._sequence:
            self.tiers.clear()
            self._history, self._changes = history, 0
        self._sequence = sequence
        sequences = history.sequences
        while self._changes < len(sequences) and sequences[self._changes] <= sequence:
            place, tiers = history.changes[self._changes]
            self._changes += 1
            if tiers is None:
                self.tiers.pop(place, None)
                continue
            promised = self.tiers.setdefault(place, {})
            for key, tier in tiers.items():
                if tier:
                    promised[key] = tier
                else:
                    promised.pop(key, None)


class WatchedTables(ShardTables):
    """A unit's tables, with a history once they are watched."""

    def watch(
        self,
        history: History,
        sequence: Callable[[], int],
        settled: Callable[[], bool],
        may_lack: Callable[[], set[Place]],
    ) -> None:
        """Note every change.

        `sequence`: the unit's, after all changes that are made. `settled`: it gives out snapshots to all.
        `may_lack`: workers of whom it need not know all when it does.
        """
        self._history = history
        self._sequence = sequence
        self._settled = settled
        self._may_lack = may_lack
        self._named: dict[Place, dict[int, int]] = {}
        """Tiers of keys named by a report that is open, by worker."""

    def edit(self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]) -> Patches:
        """As `ShardTables.edit`."""
        place, before = (table, slot), self._sequence()
        patches = super().edit(keys, table, slot, tiers)
        tiers_now = dict(zip(keys.tolist(), tiers.tolist(), strict=True))
        if place in self._named:
            self._named[place].update(tiers_now)
        after = before + (min(1, patches.groups) if patches.rebuilt else patches.groups)
        self._history.add(place, tiers_now, after)
        return patches

    def restore(self, table: int, keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        """As `ShardTables.restore`."""
        super().restore(table, keys, values)
        for slot in range(self.shape.worker_slots):
            tiers = (values >> np.uint64(2 * slot) & np.uint64(3)).tolist()
            held = {key: tier for key, tier in zip(keys.tolist(), tiers, strict=True) if tier}
            if held:
                self._history.add((table, slot), held, 0)

    def begin_report(self, table: int, slot: int) -> None:
        """As `ShardTables.begin_report`."""
        self._named[table, slot] = {}
        super().begin_report(table, slot)

    def end_report(self, table: int, slot: int) -> None:
        """As `ShardTables.end_report`."""
        self._history.add((table, slot), None, self._sequence())
        self._history.add((table, slot), self._named.pop((table, slot)), self._sequence())
        super().end_report(table, slot)

    def drop_report(self, table: int, slot: int) -> None:
        """As `ShardTables.drop_report`."""
        self._named.pop((table, slot), None)
        super().drop_report(table, slot)

    def clear_worker(self, table: int, slot: int) -> None:
        """As `ShardTables.clear_worker`."""
        self._history.cleared.add((table, slot))
        self._history.add((table, slot), None, self._sequence())
        super().clear_worker(table, slot)

    def freeze(self) -> FrozenShard:
        """As `ShardTables.freeze`."""
        if not self._history.is_settled:
            self._history.left_out |= self._may_lack()
            self._history.is_settled = self._settled()
        return super().freeze()
