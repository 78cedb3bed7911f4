"""Resident blocks that follow one another and are alike."""

from bisect import bisect_right
from collections.abc import Sequence

from kvcompass.engine_events import BlockHash
from kvcompass.keys import PrefixHasher
from kvcompass.tier import Tier

_NONE = int(Tier.NONE)


class BlockRun:
    """A chain of blocks, each the parent of the next, with as many copies in each tier.

    Only its last block has children in the tree: where a prompt parts from another within a run, the run is
    split. `tier` is that of the whole prefix up to any of its blocks: NONE as long as a block above is
    missing.
    """

    __slots__ = (
        "children",
        "data",
        "dram",
        "end",
        "hashers",
        "hashes",
        "keys",
        "lengths",
        "parent",
        "parent_hash",
        "tier",
        "vram",
    )

    def __init__(self, hashes: tuple[BlockHash, ...], parent_hash: BlockHash | None, data: bytes) -> None:
        self.hashes = hashes
        """The engine's name of each block."""
        self.parent_hash = parent_hash
        """Of the block before the first; None for a first block."""
        self.data = data
        """Tokens, int32 little endian."""
        self.parent: BlockRun | None = None
        self.children: dict[BlockHash, BlockRun] = {}
        """By their first block."""
        self.vram = 0
        """Copies there, of each block."""
        self.dram = 0
        self.tier = _NONE
        self.end = 0
        """Tokens from the first of the prompt to the end of the run, as long as its tier is not NONE; and so
        the three below."""
        self.lengths: Sequence[int] = ()
        """Registered lengths that end within the run, and"""
        self.keys: Sequence[int] = ()
        """the keys of the prefixes of these lengths."""
        self.hashers: Sequence[PrefixHasher] = ()
        """Running hashes of prefixes that end within the run, ascending."""

    def split(self, blocks: int, block_bytes: int) -> "BlockRun":
        """Cut the run after its first `blocks`; return the rest as a run below it, with all the children."""
        hashes, cut = self.hashes, blocks * block_bytes
        lower = BlockRun(hashes[blocks:], hashes[blocks - 1], self.data[cut:])
        self.hashes = hashes[:blocks]
        self.data = self.data[:cut]
        lower.vram, lower.dram, lower.tier = self.vram, self.dram, self.tier
        lower.parent = self
        lower.children = self.children
        for child in lower.children.values():
            child.parent = lower
        self.children = {lower.hashes[0]: lower}
        lower.end = self.end
        self.end -= len(lower.data) // 4
        above = bisect_right(self.lengths, self.end)
        lower.lengths, self.lengths = self.lengths[above:], self.lengths[:above]
        lower.keys, self.keys = self.keys[above:], self.keys[:above]
        lower.hashers = self.hashers
        self.keep_hashers(self.end)
        lower.hashers = lower.hashers[len(self.hashers) :]
        return lower

    def keep_hashers(self, end: int) -> None:
        """Forget the running hashes of longer prefixes than `end` tokens."""
        if self.hashers:
            kept = sum([hasher.length <= end for hasher in self.hashers])
            self.hashers = self.hashers[:kept]
