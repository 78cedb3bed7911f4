"""The keys of prefixes that are wholly resident, and the runs of blocks in which they end."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from kvcompass.keys import PrefixHasher
from kvcompass.roles.block_run import BlockRun

_TOKEN_BYTES: Final = 4
_KEPT_TOKENS: Final = 1_024
"""Between two running hashes that a run keeps. One takes 330 bytes; this many tokens are hashed in 4 us."""


class PrefixEnds:
    """Keys at registered lengths. A prefix is hashed from the last running hash that was kept above it.

    Kept are the last of each run that has keys, some within long runs, and where prompts part.
    """

    def __init__(self, root: PrefixHasher, lengths: Sequence[int]) -> None:
        """`root`: hasher of the empty prefix; `lengths`: registered ones in tokens, ascending."""
        self._root = root
        self._lengths = lengths
        self._longest = lengths[-1] if lengths else 0
        self._ends: dict[int, BlockRun] = {}
        """The run in which a key's prefix ends."""
        self._namesakes: dict[int, list[BlockRun]] = {}
        """More of them, where an engine names equal tokens twice."""
        self._touched: dict[int, int] = {}
        """Keys whose tier may have changed, in the order it happened, and their lengths."""

    def use_lengths(self, lengths: Sequence[int]) -> None:
        """Other lengths from here on. Runs that are placed keep their keys until they are placed anew."""
        self._lengths = lengths
        self._longest = lengths[-1] if lengths else 0

    def place(self, run: BlockRun) -> None:
        """Learn where a run ends and the keys within it. Its whole prefix is resident from now on."""
        start = run.parent.end if run.parent is not None else 0
        run.end = start + len(run.data) // _TOKEN_BYTES
        if start >= self._longest:
            return
        first = bisect_right(self._lengths, start)
        last = bisect_right(self._lengths, run.end, lo=first)
        if first == last:
            return
        lengths = self._lengths[first:last]
        hasher = self._hasher_below(run.parent)
        data = memoryview(run.data)
        done, kept_at = 0, start
        keys: list[int] = []
        hashers: list[PrefixHasher] = []
        for length in lengths:
            end = (length - start) * _TOKEN_BYTES
            hasher.feed_bytes(data[done:end])
            done = end
            key = hasher.key()
            keys.append(key)
            self._touched[key] = length
            if self._ends.setdefault(key, run) is not run:
                self._namesakes.setdefault(key, []).append(run)
            if length - kept_at >= _KEPT_TOKENS and length < lengths[-1]:
                kept_at = length
                hashers.append(hasher.copy())
        if lengths[-1] < self._longest:
            hashers.append(hasher)
        run.lengths, run.keys, run.hashers = lengths, keys, hashers

    def touch(self, run: BlockRun) -> None:
        """The tier of a run has changed."""
        self._touched.update(zip(run.keys, run.lengths, strict=True))

    def retire(self, run: BlockRun, kept: int = 0) -> None:
        """Forget all but the first keys of a run: what is behind is resident no more.

        Should it come back, it may be below another prefix.
        """
        gone = run.keys[kept:]
        self._touched.update(zip(gone, run.lengths[kept:], strict=True))
        for key in gone:
            others = self._namesakes.get(key) if self._namesakes else None
            if others is None:
                del self._ends[key]
                continue
            if self._ends[key] is run:
                self._ends[key] = others.pop()
            else:
                others.remove(run)
            if not others:
                del self._namesakes[key]
        run.lengths, run.keys = run.lengths[:kept], run.keys[:kept]
        run.keep_hashers(run.end if kept else 0)

    def move(self, run: BlockRun, lower: BlockRun) -> None:
        """The last keys of a run are those of its lower part from now on."""
        for key in lower.keys:
            if self._ends[key] is run:
                self._ends[key] = lower
            else:
                others = self._namesakes[key]
                others[others.index(run)] = lower

    def clear(self) -> None:
        """Nothing is resident."""
        for run in self._ends.values():
            self.touch(run)
        self._ends.clear()
        self._namesakes.clear()

    def take_touched(self) -> dict[int, int]:
        """Return what is held of each key of which that may have changed since last time.

        Returns:
            Length in tokens << 2 | the best tier in which the prefix is wholly resident, by key; 0 for none.
        """
        touched, self._touched = self._touched, {}
        ends, namesakes = self._ends, self._namesakes
        for key, length in touched.items():
            run = ends.get(key)
            if run is None:
                touched[key] = 0
            elif namesakes and key in namesakes:
                touched[key] = length << 2 | min(run.tier, *[other.tier for other in namesakes[key]])
            else:
                touched[key] = length << 2 | run.tier
        return touched

    def _hasher_below(self, run: BlockRun | None) -> PrefixHasher:
        """A hasher of the prefix up to the end of a run."""
        missing: list[bytes] = []
        above = run
        while above is not None and not above.hashers:
            missing.append(above.data)
            above = above.parent
        if above is None:
            hasher = self._root.copy()
        else:
            hasher = above.hashers[-1].copy()
            if hasher.length < above.end:
                missing.append(above.data[(hasher.length - above.end) * _TOKEN_BYTES :])
        if missing:
            hasher.feed_bytes(b"".join(reversed(missing)))
            if run is not None and len(run.children) > 1:
                run.hashers = [*run.hashers, hasher.copy()]
        return hasher
