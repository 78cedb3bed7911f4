"""Who holds which block, as somebody knows it who hears all cache events, sooner or later, in order.

The name of a block stands for it and everything before it, so a table of names is a prefix trie.
"""

from collections.abc import Iterable, Iterator, Sequence

from kvcompass.engine_events import EngineEvent
from simulator.rivals.engine_blocks import EngineBlocks
from simulator.rivals.holder_masks import turns_of


class BlockHolders:
    """One table; memory grows with what the caches hold."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._table: dict[int, int] = {}
        self._blocks = [EngineBlocks() for _ in range(workers)]

    def apply(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """Take in what an engine said. Some 0.3 us a block."""
        table = self._table
        for names, bit, held in turns_of(events, worker, self._workers, self._blocks[worker]):
            for name in names:
                after = table.get(name, 0) | bit if held else table[name] & ~bit
                if after:
                    table[name] = after
                else:
                    del table[name]

    def masks(self, names: Iterable[int]) -> Iterator[int]:
        """Who holds each of some blocks."""
        get = self._table.get
        return (get(name, 0) for name in names)
