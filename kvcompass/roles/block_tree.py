"""The blocks an engine holds, as a tree from the first token, and which of them a request could reuse."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcompass.engine_events import BlockHash
from kvcompass.keys import PrefixHasher
from kvcompass.roles.block_run import BlockRun
from kvcompass.roles.run_forest import RunForest
from kvcompass.tier import Tier

_TOKEN: Final = np.dtype("<i4")


@dataclass(slots=True)
class TreeCounters:
    """What the tree met and did not expect, in blocks. Monotonic."""

    conflicting_stores: int = 0
    """A known hash stored again with other tokens or another parent; the first stands."""
    late_parents: int = 0
    """Blocks told first as a prompt's beginning and later with a parent, which stands."""
    unknown_copies: int = 0
    """Copies told by name alone of a block that is not resident."""
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
        self._forest = RunForest(root, lengths, block_size=block_size)
        self._runs = self._forest.runs
        self._block_bytes = block_size * _TOKEN.itemsize
        self._counted = counted
        self._limits = limits
        self.repeated = 0
        """Copies in VRAM beyond a block's first. Those of detached blocks that were dropped stay in it."""
        self.counters = TreeCounters()

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._runs

    @property
    def detached(self) -> int:
        """Resident blocks that no prefix reaches."""
        return self._forest.detached_blocks

    def store(
        self, hashes: tuple[BlockHash, ...], parent_hash: BlockHash | None, data: bytes, tier: Tier
    ) -> None:
        """Note that a chain of blocks is resident in a tier.

        Args:
            hashes: The engine's, one a block, from the one after the parent on.
            parent_hash: None for a first block, or where the engine does not tell it: of a resident block
                that changes nothing. The parent may be unknown, or come later.
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

    def copy(self, hashes: tuple[BlockHash, ...], tier: Tier) -> None:
        """Note that resident blocks are resident in a tier too."""
        done = 0
        while done < len(hashes):
            run = self._runs.get(hashes[done])
            if run is None:
                self.counters.unknown_copies += 1
                done += 1
                continue
            first = run.hashes.index(hashes[done])
            count = _in_common(run.hashes, first, hashes, done)
            self._add_copies(run, first, count, tier)
            done += count

    def remove(self, hashes: tuple[BlockHash, ...], tier: Tier) -> None:
        """Note that blocks left a tier. Blocks below them stay, detached if this was a block's last tier."""
        done = 0
        while done < len(hashes):
            run = self._runs.get(hashes[done])
            if run is None or not (run.vram if tier is Tier.VRAM else run.dram):
                self.counters.unknown_removals += 1
                done += 1
                continue
            first, count = _named_of(run.hashes, hashes, done)
            done += count
            if first and first + count == len(run.hashes) and run.vram + run.dram == 1:
                self._forest.shorten(run, first)
                continue
            run = self._forest.isolated(run, first, first + count)
            if tier is Tier.VRAM:
                run.vram -= 1
                self.repeated -= len(run.hashes) if run.vram else 0
            else:
                run.dram -= 1
            if run.vram or run.dram:
                self._forest.settle(run)
            else:
                self._forest.detach(run)

    def clear(self) -> None:
        """Forget every block, in every tier."""
        self._forest.clear()
        self.repeated = 0

    def use_block_size(self, block_size: int) -> None:
        """Blocks have so many tokens from here on, of which every length is a multiple. None is resident."""
        self._forest.use_block_size(block_size)
        self._block_bytes = block_size * _TOKEN.itemsize

    def use_lengths(self, lengths: Sequence[int]) -> None:
        """Register prefixes at other lengths. O(tokens): every resident prefix is hashed anew."""
        self._forest.use_lengths(lengths)

    def take_touched(self) -> dict[int, int]:
        """See PrefixEnds.take_touched. Bounds detached blocks first."""
        self.counters.dropped_blocks += self._forest.drop_detached(self._limits.detached)
        return self._forest.take_touched()

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
            self._note(run, tier)
            self._forest.add(run, dict.fromkeys(run.hashes, run))
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
        self._note(run, tier)
        self._forest.add(run, blocks)
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
        if not same or (above != parent_hash and not self._takes_parent(run, above, parent_hash)):
            self.counters.conflicting_stores += 1
            return 1
        self._add_copies(run, first, count, tier)
        return count

    def _takes_parent(self, run: BlockRun, above: BlockHash | None, parent_hash: BlockHash | None) -> bool:
        """Whether a block may have been told with another parent than the one it has.

        A name stands for the block and all before it, so it has one parent; it may not always be told.
        """
        if parent_hash is None:
            return True
        if above is not None or not self._forest.rehang(run, parent_hash):
            return False
        self.counters.late_parents += 1
        return True

    def _add_copies(self, run: BlockRun, first: int, count: int, tier: Tier) -> None:
        """Note copies of so many blocks of a run, from the `first` on."""
        if self._counted or not (run.vram if tier is Tier.VRAM else run.dram):
            run = self._forest.isolated(run, first, first + count)
            self._note(run, tier)
            self._forest.settle(run)

    def _same_tokens(self, run: BlockRun, first: int, data: bytes, done: int, count: int) -> bool:
        step = self._block_bytes
        return run.data[first * step : (first + count) * step] == data[done * step : (done + count) * step]

    def _note(self, run: BlockRun, tier: Tier) -> None:
        if tier is Tier.VRAM:
            self.repeated += len(run.hashes) if self._counted and run.vram else 0
            run.vram = run.vram + 1 if self._counted else 1
        else:
            run.dram = run.dram + 1 if self._counted else 1


def _named_of(own: tuple[BlockHash, ...], hashes: tuple[BlockHash, ...], done: int) -> tuple[int, int]:
    """Which of a run's own blocks are named from `done` on: first and count.

    They are named in their order or, as engines evict, from the run's last one backwards.
    """
    if not done and own[-len(hashes) :] == hashes:
        return len(own) - len(hashes), len(hashes)
    if own[-1] == hashes[done]:
        count = _in_common(own[::-1], 0, hashes, done)
        return len(own) - count, count
    first = own.index(hashes[done])
    return first, _in_common(own, first, hashes, done)


def _in_common(one: tuple[BlockHash, ...], first: int, other: tuple[BlockHash, ...], second: int) -> int:
    """How many elements agree from two places on."""
    most = min(len(one) - first, len(other) - second)
    if one[first : first + most] == other[second : second + most]:
        return most
    return next(i for i in range(most) if one[first + i] != other[second + i])
