"""Everything a writer's table must be between two edits, checked the slow way."""

import numpy as np

from kvcompass.index import ShardTables
from kvcompass.kernels.hashing import first_node, mix_node, second_node
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, SALT
from kvcompass.kernels.state import ENTRIES, FREE, NEXT, PINNED
from kvcompass.keys.digest import holdings_digest


def audit(writer: ShardTables) -> None:
    """Each entry lives once; linked edges are a forest; a pin's ends are joined by it."""
    for number, each in enumerate(writer._tables):
        table = each.table
        slots = [int(entry) - 1 for entry in table.slot_entry if entry]
        free = table.free[: int(table.counts[FREE])].tolist()
        free += range(int(table.counts[NEXT]), 4 * int(table.row[BUCKETS]))
        assert sorted(slots + free) == list(range(4 * int(table.row[BUCKETS])))
        assert len(slots) == int(table.counts[ENTRIES])
        pins = table.pins[: int(table.counts[PINNED])].tolist()
        assert set(pins) <= set(slots) and len(set(pins)) == len(pins)
        linked = {entry for side in (0, 1) for entry in _listed(table, side)}
        assert not linked & set(pins)
        assert linked | set(pins) == set(slots), "an edge without a key, or a key without an edge"
        for at in table.slot_entry.nonzero()[0].tolist():
            salted = int(mix_node(table.slot_key[at])) * int(table.row[SALT])
            mix = np.uint64(salted % 2**64)
            nodes = [first_node(mix, table.row[NODES_A]), second_node(mix, *table.row[NODES_A : NODES_B + 1])]
            assert table.edges[int(table.slot_entry[at]) - 1, :2].tolist() == [int(node) for node in nodes]
        parent = list(range(table.heads.size))

        def root(node: int, parent: list[int] = parent) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for entry in linked:
            a, b = (root(int(table.edges[entry, side])) for side in (0, 1))
            assert a != b, "linked edges close a cycle"
            parent[a] = b
        for pin in pins:
            assert root(int(table.edges[pin, 0])) == root(int(table.edges[pin, 1])), "a pin joins two trees"
        for slot in range(writer.shape.worker_slots):
            keys, tiers = writer.holdings(number, slot)
            assert writer.held(number, slot) == (keys.size, holdings_digest(keys, tiers))


def _listed(table, side: int) -> list[int]:
    """Entries in the lists of one side's nodes; every one must also be in the other side's."""
    found: list[list[int]] = [[], []]
    nodes_a = int(table.row[BUCKETS + 1])
    for node in table.heads.nonzero()[0].tolist():
        of = 0 if node < nodes_a else 1
        link = int(table.heads[node])
        while link:
            assert int(table.edges[link - 1, of]) == node
            found[of].append(link - 1)
            link = int(table.edges[link - 1, 2 + of])
    assert sorted(found[0]) == sorted(found[1])
    return found[side]
