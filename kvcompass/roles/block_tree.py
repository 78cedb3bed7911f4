"""The blocks an engine holds, as a tree from the first token, and which of them a request could reuse."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcompass.engine_events import BlockHash
from kvcompass.keys import PrefixHasher
from kvcompass.roles.block_run import BlockRun
from kvcompass.roles.prefix_ends import PrefixEnds
from kvcompass.tier import Tier

_NONE: Final = int(Tier.NONE)
_VRAM: Final = int(Tier.VRAM)
_DRAM: Final = int(Tier.DRAM)
_TOKEN: Final = np.dtype("<i4")


@dataclass(slots=True)
class TreeCounters:
    """What the tree met and did not expect, in blocks. Monotonic."""

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
    """Bounds on memory. Both in blocks."""

    blocks: int = 2_000_000
    """Beyond it new blocks are ignored: the worker is credited with less than it holds."""
    detached: int = 65_536
    """Beyond it the trees detached longest are forgotten."""


class BlockTree:
    """Blocks by engine hash, their tiers, and the keys of prefixes that end at a registered length.

    A block whose parent is not resident is *detached*: kept, but no part of any prefix, until the parent is
    stored. It makes no difference whether the parent left or was never heard of.

    Blocks that came and left together are one `BlockRun`, so what is done costs by runs: nothing but a dict
    entry is made for each block.
    """

    def __init__(
        self,
        root: PrefixHasher,
        lengths: Sequence[int],
        *,
        block_size: int,
        counted: bool,
        limits: TreeLimits,
    ) -> None:
        """Start with nothing resident.

        Args:
            root: Hasher of the empty prefix in the worker's namespace.
            lengths: Registered lengths in tokens, ascending, multiples of the block size.
            block_size: Tokens a block.
            counted: Two stores of one block need two removals (`docs/decisions/0501`). Otherwise a repeated
                store changes nothing.
            limits: Bounds on memory.
        """
        self._ends = PrefixEnds(root, lengths)
        self._block_bytes = block_size * _TOKEN.itemsize
        self._counted = counted
        self._limits = limits
        self._runs: dict[BlockHash, BlockRun] = {}
        """The run of each resident block."""
        self._detached: OrderedDict[BlockHash, dict[BlockHash, BlockRun]] = OrderedDict()
        """Runs that wait for a parent, by the parent's hash and their own first."""
        self._detached_blocks = 0
        self.counters = TreeCounters()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def detached(self) -> int:
        """Resident blocks that no prefix reaches."""
        return self._detached_blocks

    def store(
        self, hashes: tuple[BlockHash, ...], parent_hash: BlockHash | None, data: bytes, tier: Tier
    ) -> None:
        """Note that a chain of blocks is resident in a tier.

        Args:
            hashes: The engine's, one a block, from the one after the parent on.
            parent_hash: None for a first block. The parent may be unknown, or come later.
            data: The blocks' tokens, int32 little endian.
            tier: VRAM or DRAM.
        """
        done = 0
        if hashes[0] not in self._runs:
            done = self._store_all_new(hashes, parent_hash, data, tier)
        while done < len(hashes):
            parent = hashes[done - 1] if done else parent_hash
            if hashes[done] in self._runs:
                done += self._store_known(hashes, done, parent, data, tier)
            else:
                done += self._store_new(hashes, done, parent, data, tier)

    def remove(self, hashes: tuple[BlockHash, ...], tier: Tier) -> None:
        """Note that blocks left a tier. Blocks below them stay, detached if this was a block's last tier."""
        done = 0
        while done < len(hashes):
            run = self._runs.get(hashes[done])
            if run is None or not (run.vram if tier is Tier.VRAM else run.dram):
                self.counters.unknown_removals += 1
                done += 1
                continue
            if not done and run.hashes[-len(hashes) :] == hashes:
                first, count = len(run.hashes) - len(hashes), len(hashes)
            else:
                first = run.hashes.index(hashes[done])
                count = _in_common(run.hashes, first, hashes, done)
            done += count
            if first and first + count == len(run.hashes) and run.vram + run.dram == 1:
                self._shorten(run, first)
                continue
            run = self._isolated(run, first, first + count)
            if tier is Tier.VRAM:
                run.vram -= 1
            else:
                run.dram -= 1
            if run.vram or run.dram:
                self._settle(run)
            else:
                self._detach(run)

    def clear(self) -> None:
        """Forget every block, in every tier."""
        self._runs.clear()
        self._detached.clear()
        self._ends.clear()
        self._detached_blocks = 0

    def use_block_size(self, block_size: int) -> None:
        """Blocks have so many tokens from here on, of which every length is a multiple. None is resident."""
        assert not self._runs, "blocks of two sizes"
        self._block_bytes = block_size * _TOKEN.itemsize

    def use_lengths(self, lengths: Sequence[int]) -> None:
        """Register prefixes at other lengths. O(tokens): every resident prefix is hashed anew."""
        runs = {id(run): run for run in self._runs.values() if run.tier != _NONE}
        downwards = sorted(runs.values(), key=lambda run: run.end)
        for run in downwards:
            self._ends.retire(run)
        self._ends.use_lengths(lengths)
        for run in downwards:
            self._ends.place(run)

    def take_touched(self) -> dict[int, int]:
        """See PrefixEnds.take_touched. Bounds detached blocks first."""
        while self._detached_blocks > self._limits.detached and self._detached:
            self._drop(self._detached.popitem(last=False)[1])
        return self._ends.take_touched()

    def _store_new(
        self,
        hashes: tuple[BlockHash, ...],
        done: int,
        parent_hash: BlockHash | None,
        data: bytes,
        tier: Tier,
    ) -> int:
        """Make a run of as many blocks as are new from `done` on; return how many have been dealt with."""
        seen: set[BlockHash | None] = {parent_hash}
        end = done
        while end < len(hashes) and hashes[end] not in self._runs and hashes[end] not in seen:
            seen.add(hashes[end])
            end += 1
        if end == done:
            self.counters.conflicting_stores += 1
            return 1
        count = min(end - done, max(0, self._limits.blocks - len(self._runs)))
        self.counters.refused_blocks += end - done - count
        if count:
            start, step = done * self._block_bytes, count * self._block_bytes
            run = BlockRun(hashes[done : done + count], parent_hash, data[start : start + step])
            self._attach(run, dict.fromkeys(run.hashes, run), tier)
        return end - done

    def _store_all_new(
        self, hashes: tuple[BlockHash, ...], parent_hash: BlockHash | None, data: bytes, tier: Tier
    ) -> int:
        """Make one run of all blocks, as they nearly always can; return how many have been dealt with."""
        run = BlockRun(hashes, parent_hash, data)
        blocks = dict.fromkeys(hashes, run)
        if (
            len(blocks) < len(hashes)
            or parent_hash in blocks
            or len(self._runs) + len(blocks) > self._limits.blocks
            or not self._runs.keys().isdisjoint(blocks)
        ):
            return 0
        self._attach(run, blocks, tier)
        return len(hashes)

    def _store_known(
        self,
        hashes: tuple[BlockHash, ...],
        done: int,
        parent_hash: BlockHash | None,
        data: bytes,
        tier: Tier,
    ) -> int:
        """Note the copies of as many blocks as one run has from `done` on; return how many."""
        run = self._runs[hashes[done]]
        first = run.hashes.index(hashes[done])
        count = _in_common(run.hashes, first, hashes, done)
        same = self._same_tokens(run, first, data, done, count)
        if not same and count > 1:
            count = 1
            same = self._same_tokens(run, first, data, done, count)
        above = run.hashes[first - 1] if first else run.parent_hash
        if above != parent_hash or not same:
            self.counters.conflicting_stores += 1
            return 1
        if self._counted or not (run.vram if tier is Tier.VRAM else run.dram):
            run = self._isolated(run, first, first + count)
            self._note(run, tier)
            self._settle(run)
        return count

    def _same_tokens(self, run: BlockRun, first: int, data: bytes, done: int, count: int) -> bool:
        step = self._block_bytes
        return run.data[first * step : (first + count) * step] == data[done * step : (done + count) * step]

    def _note(self, run: BlockRun, tier: Tier) -> None:
        if tier is Tier.VRAM:
            run.vram = run.vram + 1 if self._counted else 1
        else:
            run.dram = run.dram + 1 if self._counted else 1

    def _split(self, run: BlockRun, blocks: int) -> BlockRun:
        """See BlockRun.split."""
        lower = run.split(blocks, self._block_bytes)
        self._runs.update(dict.fromkeys(lower.hashes, lower))
        if lower.keys:
            self._ends.move(run, lower)
        return lower

    def _isolated(self, run: BlockRun, start: int, end: int) -> BlockRun:
        """Give blocks `start` to `end` of a run a run of their own."""
        if end < len(run.hashes):
            self._split(run, end)
        return self._split(run, start) if start else run

    def _attach(self, run: BlockRun, blocks: dict[BlockHash, BlockRun], tier: Tier) -> None:
        """Give a new run its place by its blocks, its parent and the children that waited for its blocks."""
        self._note(run, tier)
        self._detached_blocks += len(run.hashes)
        if run.parent_hash is not None:
            parent = self._runs.get(run.parent_hash)
            if parent is None:
                self._detached.setdefault(run.parent_hash, {})[run.hashes[0]] = run
            else:
                if parent.hashes[-1] != run.parent_hash:
                    self._split(parent, parent.hashes.index(run.parent_hash) + 1)
                run.parent = parent
                parent.children[run.hashes[0]] = run
        self._runs.update(blocks)
        if self._detached and not self._detached.keys().isdisjoint(run.hashes):
            for block_hash in [each for each in run.hashes if each in self._detached]:
                self._adopt(block_hash)
        self._settle(run)

    def _adopt(self, block_hash: BlockHash) -> None:
        """Give a block the children that waited for it."""
        run = self._runs[block_hash]
        if run.hashes[-1] != block_hash:
            self._split(run, run.hashes.index(block_hash) + 1)
        children = self._detached.pop(block_hash)
        for child in children.values():
            child.parent = run
        run.children.update(children)

    def _shorten(self, run: BlockRun, blocks: int) -> None:
        """Take all but the first blocks of a run out of the tree."""
        self._orphan(run)
        gone = run.hashes[blocks:]
        self._leave(gone)
        if run.tier == _NONE:
            self._detached_blocks -= len(gone)
        run.hashes = run.hashes[:blocks]
        run.data = run.data[: blocks * self._block_bytes]
        run.end -= len(gone) * self._block_bytes // _TOKEN.itemsize
        kept = bisect_right(run.lengths, run.end)
        if kept < len(run.lengths):
            self._ends.retire(run, kept)
        elif run.hasher is not None and run.hasher.length > run.end:
            run.hasher = None

    def _detach(self, run: BlockRun) -> None:
        """Take a run out of the tree. Its children wait for the return of its last block."""
        self._forget(run)
        if run.parent is not None:
            del run.parent.children[run.hashes[0]]
        elif run.parent_hash is not None:
            waiting = self._detached[run.parent_hash]
            del waiting[run.hashes[0]]
            if not waiting:
                del self._detached[run.parent_hash]
        self._orphan(run)

    def _orphan(self, run: BlockRun) -> None:
        """Let the children of a run wait for the return of its last block."""
        if run.children:
            self._detached[run.hashes[-1]] = run.children
            for child in run.children.values():
                child.parent = None
                self._settle(child)
            run.children = {}

    def _settle(self, run: BlockRun) -> None:
        """Bring the tiers of a run and of those below it up to date. O(runs whose tier changes)."""
        pending = [run]
        while pending:
            run = pending.pop()
            if run.parent is not None:
                above = run.parent.tier
            else:
                above = _VRAM if run.parent_hash is None else _NONE
            if above == _NONE:
                tier = _NONE
            else:
                tier = _VRAM if above == _VRAM and run.vram else _DRAM
            if tier == run.tier:
                continue
            if tier == _NONE:
                self._detached_blocks += len(run.hashes)
                self._ends.retire(run)
            elif run.tier == _NONE:
                self._detached_blocks -= len(run.hashes)
                self._ends.place(run)
            elif run.keys:
                self._ends.touch(run)
            run.tier = tier
            if run.children:
                pending.extend(run.children.values())

    def _leave(self, hashes: tuple[BlockHash, ...]) -> None:
        runs = self._runs
        for block_hash in hashes:
            del runs[block_hash]

    def _forget(self, run: BlockRun) -> None:
        self._leave(run.hashes)
        if run.tier == _NONE:
            self._detached_blocks -= len(run.hashes)
        elif run.keys:
            self._ends.retire(run)

    def _drop(self, runs: dict[BlockHash, BlockRun]) -> None:
        """Forget detached runs and everything below them."""
        pending = list(runs.values())
        while pending:
            run = pending.pop()
            self._forget(run)
            self.counters.dropped_blocks += len(run.hashes)
            pending.extend(run.children.values())


def _in_common(one: tuple[BlockHash, ...], first: int, other: tuple[BlockHash, ...], second: int) -> int:
    """How many elements agree from two places on."""
    most = min(len(one) - first, len(other) - second)
    if one[first : first + most] == other[second : second + most]:
        return most
    return next(i for i in range(most) if one[first + i] != other[second + i])
