"""The Othello forest: which bits may flip so that one key's bit changes and no other key's does.

Keys are edges between nodes of A and B; a key's bit is the xor of its nodes' bits. Flipping every node of one
side of an edge changes that edge's bit only. A lockstep walk from both ends stops when the smaller side is
exhausted, so a flip costs the smaller side; when the walks meet, the ends were joined already.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import Int
from kvcompass.kernels.image import NODES_A, put_bit, read_bit
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.prefetch import prefetch
from kvcompass.kernels.state import (
    FLIPPED_LIMIT,
    FLIPS,
    PIN_LIMIT,
    PINNED,
    PINNED_EVER,
    WALK_LIMIT,
    Scratch,
    Table,
)

# LEFT and RIGHT sort below the others: `side <= RIGHT` asks whether a smaller side was found.
LEFT: Final = 0
"""The side of the walk's first end is the smaller one: walk[0:n]."""
RIGHT: Final = 1
"""The other side is: walk[WALK_LIMIT:WALK_LIMIT+n]."""
JOINED: Final = 2
"""Both ends are in one tree."""
TOO_LARGE: Final = 3
"""A side came to WALK_LIMIT nodes before either was exhausted."""

_1: Final = np.uint64(1)


@kernel
def walk_sides(table: Table, scratch: Scratch, a: Int, b: Int, skip: Int) -> tuple[Int, Int]:
    """Walk from nodes a and b in lockstep, never over edge `skip`.

    Returns (LEFT | RIGHT | JOINED | TOO_LARGE, nodes of the smaller side).
    """
    walk = scratch.walk
    walk[0] = a
    walk[WALK_LIMIT] = b
    walk[2 * WALK_LIMIT] = skip
    walk[3 * WALK_LIMIT] = skip
    found_left: Int = 1
    found_right: Int = 1
    seen = 0
    while True:
        found_left = _expand(table, scratch, 0, seen, found_left, b)
        if found_left < 0:
            return found_left + 4, 0
        if found_left == seen + 1:
            return LEFT, found_left
        found_right = _expand(table, scratch, WALK_LIMIT, seen, found_right, a)
        if found_right < 0:
            return found_right + 4, 0
        if found_right == seen + 1:
            return RIGHT, found_right
        seen += 1


@kernel
def _expand(table: Table, scratch: Scratch, base: Int, seen: Int, found: Int, goal: Int) -> Int:
    """Append the neighbours of the node at base+seen; the new count, or JOINED-4 or TOO_LARGE-4."""
    walk = scratch.walk
    edges = table.edges
    node = walk[base + seen]
    parent = walk[base + 2 * WALK_LIMIT + seen]
    side = 0 if node < np.int64(table.row[NODES_A]) else 1
    link = np.int64(table.heads[node])
    while link != 0:
        edge = link - 1
        if edge != parent:
            other = np.int64(edges[edge, 1 - side])
            if other == goal:
                return JOINED - 4
            if found >= WALK_LIMIT:
                return TOO_LARGE - 4
            prefetch(table.heads, np.uint64(other))
            walk[base + found] = other
            walk[base + 2 * WALK_LIMIT + found] = edge
            found += 1
        link = np.int64(edges[edge, 2 + side])
    return found


@kernel
def flip_is_legal(table: Table, scratch: Scratch, side: Int, count: Int) -> bool:
    """Whether the walked side holds both or neither end of every pinned edge."""
    base = side * WALK_LIMIT
    for i in range(table.counts[PINNED]):
        pin = np.int64(table.pins[i])
        a = np.int64(table.edges[pin, 0])
        b = np.int64(table.edges[pin, 1])
        has_a, has_b = False, False
        for j in range(count):
            node = scratch.walk[base + j]
            has_a = has_a or node == a
            has_b = has_b or node == b
        if has_a != has_b:
            return False
    return True


@kernel
def flip_side(table: Table, scratch: Scratch, side: Int, count: Int) -> bool:
    """Flip all bits of the walked side and note them; False, with nothing changed, when the note is full."""
    noted = scratch.fill[0]
    if noted + count > FLIPPED_LIMIT:
        return False
    base = side * WALK_LIMIT
    for j in range(count):
        node = scratch.walk[base + j]
        bit = read_bit(table.words, table.row, np.uint64(node))
        put_bit(table.words, table.row, np.uint64(node), bit ^ _1)
        scratch.flipped[noted + j] = node
    scratch.fill[0] = noted + count
    table.counts[FLIPS] += count
    return True


@kernel
def link_edge(table: Table, edge: Int) -> None:
    """Put an edge, its nodes already written, into the lists of both nodes."""
    a = table.edges[edge, 0]
    b = table.edges[edge, 1]
    table.edges[edge, 2] = table.heads[a]
    table.edges[edge, 3] = table.heads[b]
    table.heads[a] = np.uint32(edge + 1)
    table.heads[b] = np.uint32(edge + 1)


@kernel
def unlink_edge(table: Table, edge: Int) -> None:
    """Take an edge out of the lists of both nodes."""
    for side in range(2):
        node = np.int64(table.edges[edge, side])
        link = np.int64(table.heads[node])
        if link == edge + 1:
            table.heads[node] = table.edges[edge, 2 + side]
        else:
            while np.int64(table.edges[link - 1, 2 + side]) != edge + 1:
                link = np.int64(table.edges[link - 1, 2 + side])
            table.edges[link - 1, 2 + side] = table.edges[edge, 2 + side]


@kernel
def pin_edge(table: Table, edge: Int) -> None:
    """Pin an edge whose ends are joined. The caller has checked that there is room."""
    pinned = table.counts[PINNED]
    assert pinned < PIN_LIMIT
    table.pins[pinned] = np.uint32(edge)
    table.counts[PINNED] = pinned + 1
    table.counts[PINNED_EVER] += 1


@kernel
def drop_edge(table: Table, scratch: Scratch, edge: Int) -> None:
    """Unpin or unlink an edge; then link each pin whose ends are no longer joined."""
    for i in range(table.counts[PINNED]):
        if np.int64(table.pins[i]) == edge:
            table.counts[PINNED] -= 1
            table.pins[i] = table.pins[table.counts[PINNED]]
            return
    unlink_edge(table, edge)
    promote_pins(table, scratch)


@kernel
def promote_pins(table: Table, scratch: Scratch) -> None:
    """Link each pin whose ends are no longer joined.

    Where the walk finds both sides too large to tell, the pin stays: it may then lie between two trees, and
    only forbids more flips than it must.
    """
    i = 0
    while i < table.counts[PINNED]:
        pin = np.int64(table.pins[i])
        side, _ = walk_sides(table, scratch, np.int64(table.edges[pin, 0]), np.int64(table.edges[pin, 1]), -1)
        if side <= RIGHT:
            link_edge(table, pin)
            table.counts[PINNED] -= 1
            table.pins[i] = table.pins[table.counts[PINNED]]
        else:
            i += 1
