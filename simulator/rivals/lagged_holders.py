"""Who holds which block, as each region knows it: live of its own workers, of others what has reached it.

One table serves all regions, for a table a region would take as many times the memory. It holds what regions
have told the others, and a region reads it without what is still on its way there and with what it has not
yet told itself: the bits that differ are few and differ for a short time.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kvcompass.engine_events import EngineEvent
from simulator.rivals.engine_blocks import EngineBlocks
from simulator.rivals.holder_masks import turns_of

CHANGE_BYTES: Final = 12
"""A block on the wire: its 64-bit name, and workers and tiers in the rest."""


class Change:
    """What a region tells: the bits of blocks that turn over. `listeners` have not heard it yet."""

    __slots__ = ("listeners", "turned")

    def __init__(self, turned: dict[int, int], listeners: int) -> None:
        self.turned: Final = turned
        self.listeners = listeners

    def __len__(self) -> int:
        return len(self.turned)


class LaggedHolders:
    """Code that runs in a region names that region, and changes only what its own workers hold."""

    def __init__(self, workers: int, regions: int) -> None:
        self._workers = workers
        self._blocks = [EngineBlocks() for _ in range(workers)]
        self._told: dict[int, int] = {}
        self._untold: list[dict[int, int]] = [{} for _ in range(regions)]
        self._on_the_way: list[list[Change]] = [[] for _ in range(regions)]
        """To each region, in the order of their telling."""
        self._moving: dict[int, int] = {}
        """Changes of each block that somebody has not heard: spares looking for all others."""

    def apply(self, region: int, worker: int, events: Sequence[EngineEvent]) -> None:
        """An engine of a region spoke. Some 0.3 us a block."""
        told, untold = self._told, self._untold[region]
        for names, bit, held in turns_of(events, worker, self._workers, self._blocks[worker]):
            for name in names:
                turned = untold.get(name, 0)
                if ((told.get(name, 0) ^ turned) & bit != 0) is held:
                    continue
                turned ^= bit
                if turned:
                    untold[name] = turned
                else:
                    del untold[name]

    def tell(self, region: int) -> Change | None:
        """What a region sends to every other now; None: nothing new."""
        turned = self._untold[region]
        if not turned:
            return None
        self._untold[region] = {}
        told, moving = self._told, self._moving
        change = Change(turned, len(self._on_the_way) - 1)
        for name, bits in turned.items():
            after = told.get(name, 0) ^ bits
            if after:
                told[name] = after
            else:
                del told[name]
        if change.listeners:
            for name in turned:
                moving[name] = moving.get(name, 0) + 1
        for other, waiting in enumerate(self._on_the_way):
            if other != region:
                waiting.append(change)
        return change

    def heard(self, region: int, change: Change) -> None:
        """A message has arrived in a region."""
        waiting = self._on_the_way[region]
        del waiting[next(index for index, known in enumerate(waiting) if known is change)]
        change.listeners -= 1
        if change.listeners:
            return
        moving = self._moving
        for name in change.turned:
            if moving[name] == 1:
                del moving[name]
            else:
                moving[name] -= 1

    def masks(self, region: int, names: Sequence[int]) -> Iterator[int]:
        """Who holds each of some blocks, as far as a region can know."""
        told, moving, untold = self._told.get, self._moving, self._untold[region].get
        on_the_way = self._on_the_way[region]
        for name in names:
            mask = told(name, 0) ^ untold(name, 0)
            if name in moving:
                for change in on_the_way:
                    mask ^= change.turned.get(name, 0)
            yield mask
