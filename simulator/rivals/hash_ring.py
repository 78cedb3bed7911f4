"""A ring of hashes: every worker has many points on it, and a key belongs to the next point."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator


def point(text: str) -> int:
    """Place of a name on a ring of 2^64."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class HashRing:
    """Karger et al., "Consistent hashing and random trees" (STOC 1997), with `points` points a worker."""

    def __init__(self, workers: int, points: int, salt: str = "") -> None:
        placed = sorted(
            (point(f"{salt}/{worker}/{copy}"), worker) for worker in range(workers) for copy in range(points)
        )
        self._workers = workers
        self._points = [place for place, _ in placed]
        self._owners = [worker for _, worker in placed]

    def owner(self, key: int) -> int:
        """The worker that a key belongs to."""
        index = bisect_left(self._points, key)
        return self._owners[index if index < len(self._owners) else 0]

    def owners(self, key: int) -> Iterator[int]:
        """All workers, each once, clockwise from the one that the key belongs to."""
        seen = set()
        start = bisect_left(self._points, key)
        for step in range(len(self._owners)):
            worker = self._owners[(start + step) % len(self._owners)]
            if worker not in seen:
                seen.add(worker)
                yield worker
