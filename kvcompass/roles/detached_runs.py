"""Runs of blocks whose parent is not resident."""

from collections import OrderedDict
from collections.abc import Iterable

from kvcompass.engine_events import BlockHash
from kvcompass.roles.block_run import BlockRun


class DetachedRuns:
    """Runs by the parent they wait for; the parent that was missed first comes first.

    What hangs below them is theirs to keep: only the topmost run of each tree waits.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[BlockHash, dict[BlockHash, BlockRun]] = OrderedDict()
        """By the parent and their own first block."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, run: BlockRun) -> None:
        """A run's parent is not resident."""
        assert run.parent_hash is not None, "who has no parent waits for none"
        self._waiting.setdefault(run.parent_hash, {})[run.hashes[0]] = run

    def wait_all(self, parent_hash: BlockHash, runs: dict[BlockHash, BlockRun]) -> None:
        """A block has left, the last of a run; `runs` are the run's children."""
        self._waiting[parent_hash] = runs

    def leave(self, run: BlockRun) -> None:
        """A run that waited is gone itself."""
        assert run.parent_hash is not None, "it waited"
        runs = self._waiting[run.parent_hash]
        del runs[run.hashes[0]]
        if not runs:
            del self._waiting[run.parent_hash]

    def awaited(self, hashes: Iterable[BlockHash]) -> list[BlockHash]:
        """Return which of some blocks are waited for, in their order."""
        if not self._waiting or self._waiting.keys().isdisjoint(hashes):
            return []
        return [each for each in hashes if each in self._waiting]

    def take(self, parent_hash: BlockHash) -> dict[BlockHash, BlockRun]:
        """Return those that waited for a block; they wait no more."""
        return self._waiting.pop(parent_hash)

    def take_oldest(self) -> dict[BlockHash, BlockRun]:
        """Return those that waited for the block that was missed first."""
        return self._waiting.popitem(last=False)[1]

    def clear(self) -> None:
        """Nobody waits."""
        self._waiting.clear()
