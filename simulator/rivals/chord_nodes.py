"""A ring of Chord nodes with their finger tables, all of them settled."""

from bisect import bisect_left
from typing import Final

from simulator.rivals.hash_ring import point

BITS: Final = 64
"""Of an identifier; the paper's 160 change nothing at these sizes."""
_SIZE: Final = 1 << BITS


def between(value: int, after: int, until: int) -> bool:
    """Whether an identifier lies in the arc (after, until]; all of the ring when both are the same."""
    return ((value - after) % _SIZE or _SIZE) <= ((until - after) % _SIZE or _SIZE)


class ChordNodes:
    """`worker[n]` runs node n; nodes are numbered in order of their identifiers."""

    def __init__(self, workers: int, nodes_a_worker: int) -> None:
        placed = sorted(
            (point(f"chord {worker} {copy}"), worker)
            for worker in range(workers)
            for copy in range(nodes_a_worker)
        )
        self.ids: Final = [place for place, _ in placed]
        self.worker: Final = [worker for _, worker in placed]
        self.fingers: Final = [self._fingers_of(node) for node in range(len(placed))]
        """Of each node: the first node at or after id + 2^i, for every i, farthest first, each once."""

    def successor_of(self, key: int) -> int:
        """The node that a key belongs to, as one sees it who knows all nodes."""
        return bisect_left(self.ids, key) % len(self.ids)

    def next_hop(self, node: int, key: int) -> int | None:
        """Where a node sends a search on; None: the key belongs to the node after this one.

        That is the finger closest before the key (Stoica et al., Fig. 4, `closest_preceding_node`).
        """
        ids = self.ids
        here = ids[node]
        following = (node + 1) % len(ids)
        if between(key, here, ids[following]):
            return None
        return next(
            (finger for finger in self.fingers[node] if between(ids[finger], here, (key - 1) % _SIZE)),
            following,
        )

    def _fingers_of(self, node: int) -> tuple[int, ...]:
        starts = ((self.ids[node] + (1 << i)) % _SIZE for i in range(BITS))
        fingers = dict.fromkeys(self.successor_of(start) for start in starts)
        return tuple(reversed([finger for finger in fingers if finger != node]))
