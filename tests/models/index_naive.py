"""Naive twins of the index: a dict a table, and a match that reads like its specification."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class NaiveTable:
    """Key -> value with 2-bit fields."""

    values: dict[int, int] = field(default_factory=dict)

    def set(self, key: int, slot: int, tier: int) -> bool:
        """Whether anything changed."""
        old = self.values.get(key, 0)
        new = old & ~(3 << 2 * slot) | tier << 2 * slot
        if new:
            self.values[key] = new
        else:
            self.values.pop(key, None)
        return new != old

    def clear(self, slot: int) -> None:
        for key in list(self.values):
            self.set(key, slot, 0)

    def holdings(self, slot: int) -> dict[int, int]:
        return {key: value >> 2 * slot & 3 for key, value in self.values.items() if value >> 2 * slot & 3}


@dataclass(frozen=True)
class NaiveWorker:
    table: int
    slot: int
    region: int


def naive_match(
    tables: Mapping[tuple[int, int], NaiveTable],
    shard_of: Sequence[int],
    absent: Iterable[int],
    keys: Sequence[int],
    rungs: Sequence[int],
    queried: np.ndarray,
    guard: Sequence[int],
    worker: NaiveWorker,
) -> tuple[int, int]:
    """(match_tokens, tier) of one worker; `tables` by (shard, table), `shard_of` by level."""
    tokens, tier = 0, 0
    for level in range(min(len(keys), len(rungs))):
        is_guard = guard[worker.region] == level
        if not queried[worker.region, level] and not is_guard:
            continue
        if shard_of[level] in absent:
            continue
        table = tables[shard_of[level], worker.table]
        held = table.values.get(keys[level], 0) >> 2 * worker.slot & 3
        if not held:
            break
        if not is_guard:
            tokens, tier = rungs[level], held
    return tokens, tier


def split_groups(payload: bytes) -> list[bytes]:
    """The groups of a payload, each as bytes."""
    words = np.frombuffer(payload, "<u4")
    groups, at = [], 0
    while at < len(words):
        end = at + int(words[at])
        groups.append(words[at:end].tobytes())
        at = end
    return groups
