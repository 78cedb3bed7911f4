"""What the writer keeps beside a table's image, grouped so that kernels can hand it on in one argument."""

from typing import Final, NamedTuple

import numpy as np

from kvcompass.kernels.arrays import I64, U32, U64, Words

FREE: Final = 0
"""Entries in the free list; those from NEXT on are free too."""
PINNED: Final = 1
"""Pinned edges now."""
ENTRIES: Final = 2
"""Keys in the table."""
PINNED_EVER: Final = 3
"""Edges pinned, ever."""
MOVES: Final = 4
"""Keys moved between buckets, ever."""
FLIPS: Final = 5
"""Othello bits flipped, ever."""
NEXT: Final = 6
"""Entries from here on were never used."""
SPLIT: Final = 7
"""Of a table that doubles another: buckets of that one which are split into this one, from 0 on."""
SPREAD: Final = 8
"""Of the same: words of Othello bits copied so far."""
COUNTS: Final = 9

HELD: Final = 0
"""Keys that a worker holds."""
HOLDINGS_DIGEST: Final = 1
"""Digest of its keys and tiers, `kvcompass.keys.digest.holdings_digest`."""

PIN_LIMIT: Final = 64
"""Pinned edges a table may hold; with one more it finds no place for a key. A table of 1e6 seldom has one."""
WALK_LIMIT: Final = 4096
"""Nodes of the smaller side of a component that a flip may touch; with more it finds no place for a key."""
FLIPPED_LIMIT: Final = 4 * WALK_LIMIT
TOUCHED_LIMIT: Final = 64
AHEAD: Final = 64
"""Keys of a batch that may be looked at ahead of their edits; a power of two."""
SEARCH_LIMIT: Final = 1024
"""Buckets a search for a cuckoo path looks at before the table counts as full."""
PATH_LIMIT: Final = 5
"""Longest cuckoo path, moves."""


class Table(NamedTuple):
    """One table of a writer. Entry e (0-based) is an edge of the Othello graph and lives in one slot.

    `edges[e]` = node in A, node in B, next entry + 1 at either node (0 ends the list). `heads[node]` = first
    entry + 1. The linked edges form a forest; an edge that would close a cycle is *pinned* instead: its bit
    is already decided by the forest, and its key may not move.
    """

    words: Words
    """The image."""
    row: U64
    """Its row, uint64[ROW]."""
    slot_key: U64
    """Key of each slot, uint64[4 * buckets]."""
    slot_entry: U32
    """Entry + 1 of each slot, 0 for a free slot, uint32[4 * buckets]."""
    edges: U32
    """uint32[4 * buckets, 4]."""
    heads: U32
    """uint32[nodes]."""
    free: U32
    """Stack of free entries, uint32[4 * buckets]."""
    pins: U32
    """Pinned entries, uint32[2 * PIN_LIMIT]; the second half only while the table doubles another."""
    counts: I64
    """int64[COUNTS]."""
    workers: U64
    """uint64[worker slots, 2]: HELD, HOLDINGS_DIGEST."""


class Scratch(NamedTuple):
    """Working memory of an edit, shared by all tables of a writer."""

    walk: I64
    """int64[4 * WALK_LIMIT]: nodes and parent edges of the two sides of a lockstep walk."""
    search: I64
    """int64[SEARCH_LIMIT, 4]: bucket, parent, slot in the parent's bucket, depth."""
    flipped: I64
    """int64[FLIPPED_LIMIT]: Othello nodes flipped by the present edit."""
    touched: I64
    """int64[TOUCHED_LIMIT]: buckets rewritten by the present edit."""
    fill: I64
    """int64[2]: used length of `flipped` and `touched`."""
    keys: U64
    """uint64[4, 4]: key, node mix, fingerprint, value of up to four keys being placed in a bucket."""
    entries: I64
    """int64[4]: their entries + 1."""
    ahead: U64
    """uint64[AHEAD, 3]: what is known of keys that will be edited soon (`kvcompass.kernels.ahead`)."""


def new_scratch() -> Scratch:
    """Zeroed working memory."""
    return Scratch(
        walk=np.zeros(4 * WALK_LIMIT, np.int64),
        search=np.zeros((SEARCH_LIMIT, 4), np.int64),
        flipped=np.zeros(FLIPPED_LIMIT, np.int64),
        touched=np.zeros(TOUCHED_LIMIT, np.int64),
        fill=np.zeros(2, np.int64),
        keys=np.zeros((4, 4), np.uint64),
        entries=np.zeros(4, np.int64),
        ahead=np.zeros((AHEAD, 3), np.uint64),
    )
