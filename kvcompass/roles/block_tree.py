"""The blocks an engine holds, as a tree from the first token, and which of them a request could reuse."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcompass.engine_events import BlockHash
from kvcompass.keys import PrefixHasher
from kvcompass.tier import Tier

_NONE: Final = int(Tier.NONE)
_VRAM: Final = int(Tier.VRAM)
_DRAM: Final = int(Tier.DRAM)


class Block:
    """A resident block. Siblings form a linked list, so that unlinking costs the same for any fan-out.

    `tier` is that of the whole prefix that ends here: NONE as long as a block above is missing.
    """

    __slots__ = (
        "dram",
        "first_child",
        "hash",
        "hasher",
        "key",
        "length",
        "next",
        "parent",
        "parent_hash",
        "previous",
        "tier",
        "tokens",
        "vram",
    )

    def __init__(self, block_hash: BlockHash, parent_hash: BlockHash | None, tokens: bytes) -> None:
        self.hash = block_hash
        self.parent_hash = parent_hash
        self.tokens = tokens
        self.parent: Block | None = None
        self.first_child: Block | None = None
        self.next: Block | None = None
        self.previous: Block | None = None
        self.vram = 0
        self.dram = 0
        self.tier = _NONE
        self.length = 0
        """Tokens from the first to the end of this block; 0 until it was first reached from the root."""
        self.key = -1
        """Prefix key where the length is registered, else -1."""
        self.hasher: PrefixHasher | None = None
        """Running hash of the prefix, kept at registered lengths only."""


@dataclass(slots=True)
class TreeCounters:
    """What the tree met and did not expect. Monotonic."""

    conflicting_stores: int = 0
    """A known hash stored again with other tokens or another parent; the first stands."""
    unknown_removals: int = 0
    """Removals of a block that is not resident in that tier."""
    dropped_blocks: int = 0
    """Detached blocks forgotten because there were too many."""
    refused_blocks: int = 0
    """New blocks ignored because the tree was full."""


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """Bounds on memory; a block takes about half a kilobyte. Both in blocks."""

    blocks: int = 2_000_000
    """Beyond it new blocks are ignored: the worker is credited with less than it holds."""
    detached: int = 65_536
    """Beyond it the trees detached longest are forgotten."""


class BlockTree:
    """Blocks by engine hash, their tiers, and the keys of prefixes that end at a registered length.

    A block whose parent is not resident is *detached*: kept, but no part of any prefix, until the parent is
    stored. It makes no difference whether the parent left or was never heard of.

    A prefix is hashed from the last registered length above it, never from its start.
    """

    def __init__(
        self, root: PrefixHasher, lengths: frozenset[int], *, counted: bool, limits: TreeLimits
    ) -> None:
        """Start with nothing resident.

        Args:
            root: Hasher of the empty prefix in the worker's namespace.
            lengths: Registered lengths in tokens, multiples of the block size.
            counted: Two stores of one block need two removals (`docs/decisions/0501`). Otherwise a repeated
                store changes nothing.
            limits: Bounds on memory.
        """
        self._root = root
        self._lengths = lengths
        self._longest = max(lengths, default=0)
        self._counted = counted
        self._limits = limits
        self._blocks: dict[BlockHash, Block] = {}
        self._detached: OrderedDict[BlockHash, Block] = OrderedDict()
        """Heads of the lists of blocks that wait for a parent, by the parent's hash."""
        self._detached_blocks = 0
        self._ends: dict[int, tuple[Block, ...]] = {}
        """Blocks at which a key's prefix ends: one, or several where an engine names equal tokens twice."""
        self._touched: dict[int, None] = {}
        """Keys whose tier may have changed, in the order it happened."""
        self.counters = TreeCounters()

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def detached(self) -> int:
        """Resident blocks that no prefix reaches."""
        return self._detached_blocks

    def store(self, block_hash: BlockHash, parent_hash: BlockHash | None, tokens: bytes, tier: Tier) -> bool:
        """Note that a block is resident in a tier.

        Args:
            block_hash: The engine's.
            parent_hash: None for a first block. The parent may be unknown, or come later.
            tokens: The block's, int32 little endian.
            tier: VRAM or DRAM.

        Returns:
            Whether the block was new. False too for a store that is counted and ignored (see `TreeCounters`).
        """
        block = self._blocks.get(block_hash)
        if block is None:
            if block_hash == parent_hash:
                self.counters.conflicting_stores += 1
                return False
            if len(self._blocks) >= self._limits.blocks:
                self.counters.refused_blocks += 1
                return False
            self._note(block := Block(block_hash, parent_hash, tokens), tier)
            self._attach(block)
            self._settle(block)
            return True
        if block.parent_hash != parent_hash or block.tokens != tokens:
            self.counters.conflicting_stores += 1
            return False
        self._note(block, tier)
        self._settle(block)
        return False

    def remove(self, block_hash: BlockHash, tier: Tier) -> None:
        """Note that a block left a tier. Blocks below it stay, detached if this was its last tier."""
        block = self._blocks.get(block_hash)
        if block is None or not (block.vram if tier is Tier.VRAM else block.dram):
            self.counters.unknown_removals += 1
            return
        if tier is Tier.VRAM:
            block.vram -= 1
        else:
            block.dram -= 1
        if block.vram or block.dram:
            self._settle(block)
        else:
            self._detach(block)

    def clear(self) -> None:
        """Forget every block, in every tier."""
        self._touched.update(dict.fromkeys(self._ends))
        self._blocks.clear()
        self._detached.clear()
        self._ends.clear()
        self._detached_blocks = 0

    def take_touched(self) -> list[int]:
        """Return the keys whose tier may have changed since last time. Bounds detached blocks first."""
        while self._detached_blocks > self._limits.detached and self._detached:
            self._drop(self._detached.popitem(last=False)[1])
        touched = list(self._touched)
        self._touched.clear()
        return touched

    def tier(self, key: int) -> int:
        """Return the best tier in which the prefix of a key is wholly resident."""
        tiers = [block.tier for block in self._ends.get(key, ()) if block.tier]
        return min(tiers, default=_NONE)

    def length(self, key: int) -> int:
        """Return the length of a resident prefix, tokens; 0 for a key that is none's."""
        ends = self._ends.get(key)
        return ends[0].length if ends else 0

    def _note(self, block: Block, tier: Tier) -> None:
        if tier is Tier.VRAM:
            block.vram = block.vram + 1 if self._counted else 1
        else:
            block.dram = block.dram + 1 if self._counted else 1

    def _attach(self, block: Block) -> None:
        """Give a new block its parent and the children that waited for it."""
        self._blocks[block.hash] = block
        self._detached_blocks += 1
        if block.parent_hash is not None:
            block.parent = self._blocks.get(block.parent_hash)
            self._link(block)
        child = block.first_child = self._detached.pop(block.hash, None)
        while child is not None:
            child.parent = block
            child = child.next

    def _detach(self, block: Block) -> None:
        """Take a block out of the tree. Its children wait for its return."""
        self._forget(block)
        self._unlink(block)
        if block.first_child is not None:
            self._detached[block.hash] = block.first_child
            for child in _siblings(block.first_child):
                child.parent = None
                self._settle(child)

    def _link(self, block: Block) -> None:
        """Put a block first among its siblings. First blocks need no list: the root never leaves."""
        assert block.parent_hash is not None
        if block.parent is not None:
            block.next, block.parent.first_child = block.parent.first_child, block
        else:
            block.next = self._detached.get(block.parent_hash)
            self._detached[block.parent_hash] = block
        if block.next is not None:
            block.next.previous = block

    def _unlink(self, block: Block) -> None:
        if block.next is not None:
            block.next.previous = block.previous
        if block.previous is not None:
            block.previous.next = block.next
        elif block.parent is not None:
            block.parent.first_child = block.next
        elif block.parent_hash is not None:
            if block.next is not None:
                self._detached[block.parent_hash] = block.next
            else:
                del self._detached[block.parent_hash]

    def _settle(self, block: Block) -> None:
        """Bring the tiers of a block and of those below it up to date. O(blocks whose tier changes)."""
        pending = [block]
        while pending:
            block = pending.pop()
            if block.parent is not None:
                above = block.parent.tier
            else:
                above = _VRAM if block.parent_hash is None else _NONE
            if above == _NONE:
                tier = _NONE
            else:
                tier = _VRAM if above == _VRAM and block.vram else _DRAM
            if tier == block.tier:
                continue
            if tier == _NONE:
                self._detached_blocks += 1
            elif block.tier == _NONE:
                self._detached_blocks -= 1
                if not block.length:
                    self._place(block)
            block.tier = tier
            if block.key >= 0:
                self._touched[block.key] = None
            pending.extend(_siblings(block.first_child))

    def _place(self, block: Block) -> None:
        """Learn a block's length, and its key at a registered length. Its whole prefix is resident."""
        block.length = (block.parent.length if block.parent is not None else 0) + len(block.tokens) // 4
        if block.length not in self._lengths:
            return
        tail = [block.tokens]
        above = block.parent
        while above is not None and above.hasher is None:
            tail.append(above.tokens)
            above = above.parent
        hasher = (self._root if above is None or above.hasher is None else above.hasher).copy()
        hasher.feed(np.frombuffer(b"".join(reversed(tail)), dtype=np.int32))
        block.key = hasher.key()
        if block.length < self._longest:
            block.hasher = hasher
        self._ends[block.key] = (*self._ends.get(block.key, ()), block)

    def _forget(self, block: Block) -> None:
        del self._blocks[block.hash]
        if block.tier == _NONE:
            self._detached_blocks -= 1
        if block.key >= 0:
            self._touched[block.key] = None
            others = tuple(end for end in self._ends[block.key] if end is not block)
            if others:
                self._ends[block.key] = others
            else:
                del self._ends[block.key]

    def _drop(self, head: Block) -> None:
        """Forget a list of detached blocks and everything below them."""
        pending = list(_siblings(head))
        while pending:
            block = pending.pop()
            self._forget(block)
            self.counters.dropped_blocks += 1
            pending.extend(_siblings(block.first_child))


def _siblings(block: Block | None) -> Iterator[Block]:
    while block is not None:
        following = block.next
        yield block
        block = following
