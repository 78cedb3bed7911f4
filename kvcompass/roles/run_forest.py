"""The runs of resident blocks as trees: how they hang together, part, and lose what is above them."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np

from kvcompass.engine_events import BlockHash
from kvcompass.keys import PrefixHasher
from kvcompass.roles.block_run import BlockRun
from kvcompass.roles.detached_runs import DetachedRuns
from kvcompass.roles.prefix_ends import PrefixEnds
from kvcompass.tier import Tier

_NONE: Final = int(Tier.NONE)
_VRAM: Final = int(Tier.VRAM)
_DRAM: Final = int(Tier.DRAM)
_TOKEN: Final = np.dtype("<i4")


class RunForest:
    """Every run below its parent, with the tier of its whole prefix; and the keys that follow from it.

    A run whose parent is not resident is detached: kept, but no part of any prefix.
    """

    def __init__(self, root: PrefixHasher, lengths: Sequence[int], *, block_size: int) -> None:
        """`root`: hasher of the empty prefix; `lengths`: registered ones in tokens, ascending."""
        self._ends = PrefixEnds(root, lengths)
        self._block_bytes = block_size * _TOKEN.itemsize
        self._detached = DetachedRuns()
        self.runs: dict[BlockHash, BlockRun] = {}
        """The run of each resident block. To be read."""
        self.detached_blocks = 0
        """In runs that are detached, or below such."""

    def clear(self) -> None:
        """Forget every block, in every tier."""
        self.runs.clear()
        self._detached.clear()
        self._ends.clear()
        self.detached_blocks = 0

    def use_block_size(self, block_size: int) -> None:
        """Blocks have so many tokens from here on, of which every length is a multiple. None is resident."""
        assert not self.runs, "blocks of two sizes"
        self._block_bytes = block_size * _TOKEN.itemsize

    def use_lengths(self, lengths: Sequence[int]) -> None:
        """Register prefixes at other lengths. O(tokens): every resident prefix is hashed anew."""
        runs = {id(run): run for run in self.runs.values() if run.tier != _NONE}
        downwards = sorted(runs.values(), key=lambda run: run.end)
        for run in downwards:
            self._ends.retire(run)
        self._ends.use_lengths(lengths)
        for run in downwards:
            self._ends.place(run)

    def add(self, run: BlockRun, blocks: dict[BlockHash, BlockRun]) -> None:
        """Give a new run its place by its blocks, its parent and the children that waited for its blocks.

        `blocks`: the run by each of its blocks.
        """
        self.detached_blocks += len(run.hashes)
        if run.parent_hash is not None:
            parent = self.runs.get(run.parent_hash)
            if parent is None:
                self._detached.wait(run)
            else:
                if parent.hashes[-1] != run.parent_hash:
                    self._split(parent, parent.hashes.index(run.parent_hash) + 1)
                run.parent = parent
                parent.children[run.hashes[0]] = run
        self.runs.update(blocks)
        for block_hash in self._detached.awaited(run.hashes):
            self._adopt(block_hash)
        self.settle(run)

    def isolated(self, run: BlockRun, start: int, end: int) -> BlockRun:
        """Give blocks `start` to `end` of a run a run of their own."""
        if end < len(run.hashes):
            self._split(run, end)
        return self._split(run, start) if start else run

    def rehang(self, run: BlockRun, parent_hash: BlockHash) -> bool:
        """Put a run that began prompts below the parent that is told now; False where that is below itself.

        Unless it is detached, whatever is below a first run is known by following parents.
        """
        parent = self.runs.get(parent_hash)
        above = parent if parent is not None and parent.tier != _NONE else None
        while above is not None:
            if above is run:
                return False
            above = above.parent
        run.parent_hash = parent_hash
        self._detached.wait(run)
        self.settle(run)
        if parent is not None:
            self._adopt(parent_hash)
            self.settle(run)
        return True

    def shorten(self, run: BlockRun, blocks: int) -> None:
        """Take all but the first blocks of a run out of the tree."""
        self._orphan(run)
        gone = run.hashes[blocks:]
        self._leave(gone)
        if run.tier == _NONE:
            self.detached_blocks -= len(gone)
        run.hashes = run.hashes[:blocks]
        run.data = run.data[: blocks * self._block_bytes]
        run.end -= len(gone) * self._block_bytes // _TOKEN.itemsize
        kept = bisect_right(run.lengths, run.end)
        if kept < len(run.lengths):
            self._ends.retire(run, kept)
        else:
            run.keep_hashers(run.end)

    def detach(self, run: BlockRun) -> None:
        """Take a run out of the tree. Its children wait for the return of its last block."""
        self._forget(run)
        if run.parent is not None:
            del run.parent.children[run.hashes[0]]
        elif run.parent_hash is not None:
            self._detached.leave(run)
        self._orphan(run)

    def settle(self, run: BlockRun) -> None:
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
                self.detached_blocks += len(run.hashes)
                self._ends.retire(run)
            elif run.tier == _NONE:
                self.detached_blocks -= len(run.hashes)
                self._ends.place(run)
            elif run.keys:
                self._ends.touch(run)
            run.tier = tier
            if run.children:
                pending.extend(run.children.values())

    def drop_detached(self, most: int) -> int:
        """Forget detached blocks, those that were detached first, until no more than so many are left.

        Blocks that are each other's parents wait for nobody: if they are too many, all that is detached goes.

        Returns:
            How many were forgotten.
        """
        before = self.detached_blocks
        while self.detached_blocks > most and self._detached:
            pending = list(self._detached.take_oldest().values())
            while pending:
                run = pending.pop()
                self._forget(run)
                pending.extend(run.children.values())
        if self.detached_blocks > most:
            for run in {id(run): run for run in self.runs.values() if run.tier == _NONE}.values():
                self._forget(run)
        return before - self.detached_blocks

    def take_touched(self) -> dict[int, int]:
        """See PrefixEnds.take_touched."""
        return self._ends.take_touched()

    def _split(self, run: BlockRun, blocks: int) -> BlockRun:
        """See BlockRun.split."""
        lower = run.split(blocks, self._block_bytes)
        self.runs.update(dict.fromkeys(lower.hashes, lower))
        if lower.keys:
            self._ends.move(run, lower)
        return lower

    def _adopt(self, block_hash: BlockHash) -> None:
        """Give a block the children that waited for it."""
        run = self.runs[block_hash]
        if run.hashes[-1] != block_hash:
            self._split(run, run.hashes.index(block_hash) + 1)
        children = self._detached.take(block_hash)
        for child in children.values():
            child.parent = run
        run.children.update(children)

    def _orphan(self, run: BlockRun) -> None:
        """Let the children of a run wait for the return of its last block."""
        if run.children:
            self._detached.wait_all(run.hashes[-1], run.children)
            for child in run.children.values():
                child.parent = None
                self.settle(child)
            run.children = {}

    def _leave(self, hashes: tuple[BlockHash, ...]) -> None:
        runs = self.runs
        for block_hash in hashes:
            del runs[block_hash]

    def _forget(self, run: BlockRun) -> None:
        self._leave(run.hashes)
        if run.tier == _NONE:
            self.detached_blocks -= len(run.hashes)
        elif run.keys:
            self._ends.retire(run)
