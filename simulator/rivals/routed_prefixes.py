"""Where prefixes were sent lately: the approximate prefix tree of routers that hear no cache events.

Follows SGLang's router (`sgl-router`, `tree.rs`), from which SkyWalker took its own: prompts are inserted
when they are routed, and each worker keeps its most recently used ones, up to a size.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

TREE_CHARACTERS: Final = 1 << 24
"""`max_tree_size` of both, a worker."""
CHARACTERS_A_TOKEN: Final = 4
"""Of English text."""


class RoutedPrefixes:
    """Prompts as chunk names (`chunk_names`): a table of them is a tree. Places are workers or regions.

    A chunk is never used less recently than one after it, so eviction takes leaves first.
    """

    def __init__(self, places: int, chunk: int) -> None:
        self._chunk = chunk
        self._most = TREE_CHARACTERS // CHARACTERS_A_TOKEN // chunk
        self._table: dict[int, int] = {}
        self._recent: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(places)]

    def size(self, place: int) -> int:
        """Chunks that a place is thought to hold."""
        return len(self._recent[place])

    def insert(self, names: Sequence[int], place: int) -> None:
        """A prompt was sent there. Some 0.3 us a chunk."""
        table, recent, bit = self._table, self._recent[place], 1 << place
        for name in reversed(names):
            if name in recent:
                recent.move_to_end(name)
            else:
                recent[name] = None
                table[name] = table.get(name, 0) | bit
        while len(recent) > self._most:
            name, _ = recent.popitem(last=False)
            table[name] &= ~bit
            if not table[name]:
                del table[name]

    def match(self, names: Sequence[int], among: int) -> tuple[int, int]:
        """Return the length of the longest prefix that any of some places has, in chunks, and which have it.

        Args:
            among: Bits of the places that count.
        """
        table = self._table
        holders = among
        for depth, name in enumerate(names):
            further = table.get(name, 0) & among
            if not further:
                return depth, holders
            holders = further
        return len(names), holders
