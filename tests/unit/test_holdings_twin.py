"""Holdings against the naive twin, on event streams an engine would send and on streams none should."""

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineNews,
    EventsLost,
)
from kvcompass.keys import namespace, shard_of
from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.event_intake import BlockSizeMismatch
from kvcompass.roles.holdings import Holdings, RepeatedStores, ShardEdits
from tests.models.agent_fleets import agent_plan
from tests.models.holdings_naive import NaiveHoldings

BLOCK = 2
SHARDS = 3
LENGTHS = (2, 4, 8, 12)
NAMESPACE = namespace(agent_plan().model, "")
MEDIA = st.sampled_from([None, "GPU", "CPU", "CPU_PINNED", "DISK"])
SCOPES = st.sampled_from(["", "", "", "salt"])


def holdings(repeated: RepeatedStores = RepeatedStores.COUNTED, limits: TreeLimits | None = None) -> Holdings:
    return Holdings(
        NAMESPACE,
        block_size=BLOCK,
        lengths=np.array(LENGTHS, dtype=np.int32),
        shards=SHARDS,
        repeated_stores=repeated,
        limits=limits or TreeLimits(),
    )


def stored(
    hashes: list[int], parent: int | None, tokens: list[int], medium: str | None, scope: str = ""
) -> BlockStored:
    return BlockStored(tuple(hashes), parent, np.array(tokens, dtype=np.int32), BLOCK, medium, scope)


@st.composite
def sensible_events(draw: st.DrawFn) -> list[EngineNews]:
    """Prefixes over few tokens, named as an engine would: one hash a path, another under a salt.

    Chains come whole or block by block, with the salt at their first block alone as vLLM tells it; they are
    copied by name, or spelled without the salt, and blocks leave. A parent may go untold.
    """
    events: list[EngineNews] = []
    paths = st.lists(st.tuples(st.just(0), st.integers(0, 1)), min_size=1, max_size=7)
    known = draw(st.lists(paths, min_size=1, max_size=3))
    for _ in range(draw(st.integers(1, 16))):
        path = draw(st.sampled_from(known))
        path = [*path[: draw(st.integers(1, len(path)))], *draw(st.just([]) | paths)][:7]
        scope = draw(SCOPES)
        hashes = [hash_of(path[: i + 1], scope) for i in range(len(path))]
        medium = draw(MEDIA)
        match draw(
            st.sampled_from(
                ["store", "store", "extend", "orphan", "copy", "spelled", "remove", "evict", "clear"]
            )
        ):
            case "store":
                events.append(stored(hashes, None, list(itertools.chain(*path)), medium, scope))
            case "extend":
                parent = hashes[-2] if len(hashes) > 1 else None
                events.append(stored(hashes[-1:], parent, list(path[-1]), medium, "" if parent else scope))
            case "orphan":
                events.append(stored(hashes[-1:], None, list(path[-1]), medium, scope))
            case "copy":
                events.append(BlocksCopied(tuple(hashes), medium))
            case "spelled":
                events.append(stored(hashes, None, list(itertools.chain(*path)), "CPU"))
            case "remove":
                events.append(BlockRemoved((hashes[-1],), medium))
            case "evict":
                events.append(
                    BlockRemoved(tuple(hashes if draw(st.booleans()) else reversed(hashes)), medium)
                )
            case _:
                events.append(AllBlocksCleared())
    return events


def hash_of(path: list[tuple[int, int]], scope: str = "") -> int:
    return int("1" + "".join(f"{a}{b}" for a, b in path), 2) * (-1 if scope else 1)


HASHES = st.integers(0, 4)


@st.composite
def any_store(draw: st.DrawFn) -> BlockStored:
    """Names say nothing about tokens and parents; now and then tokens are missing."""
    names = draw(st.lists(HASHES, max_size=3))
    size = BLOCK * len(names) - draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
    tokens = draw(st.lists(st.integers(0, 1), min_size=max(0, size), max_size=max(0, size)))
    return stored(names, draw(st.none() | HASHES), tokens, draw(MEDIA), draw(SCOPES))


NONSENSE = st.lists(
    st.one_of(
        any_store(),
        any_store(),
        st.builds(
            lambda hashes, medium, scope: BlocksCopied(tuple(hashes), medium, scope),
            st.lists(HASHES, max_size=3),
            MEDIA,
            SCOPES,
        ),
        st.builds(
            lambda hashes, medium: BlockRemoved(tuple(hashes), medium), st.lists(HASHES, max_size=3), MEDIA
        ),
        st.sampled_from([AllBlocksCleared(), EventsLost(removals=True), EventsLost(removals=False)]),
    ),
    max_size=25,
)
OTHER_LENGTHS = st.lists(st.sampled_from(range(2, 15, 2)), unique=True).map(sorted)
"""In the place of LENGTHS: multiples of the block size."""
CUTS = st.lists(st.tuples(st.integers(0, 25), st.none() | OTHER_LENGTHS), max_size=4)
"""Places where a batch ends, and what lengths are registered from there on; None: as before."""


def check(
    events: Sequence[EngineNews],
    cuts: Sequence[tuple[int, list[int] | None]],
    repeated: RepeatedStores = RepeatedStores.COUNTED,
) -> None:
    """Apply the events in batches; after each, everything a unit could know must equal the twin's truth.

    `cuts` are CUTS.
    """
    agent = holdings(repeated)
    twin = NaiveHoldings(NAMESPACE, BLOCK, LENGTHS, counted=repeated is RepeatedStores.COUNTED)
    at_unit: dict[int, int] = {}
    start = 0
    for stop, lengths in [*sorted(cuts, key=lambda cut: cut[0]), (len(events), None)]:
        batch = events[start:stop]
        start = stop
        edits = agent.apply(batch)
        assert not isinstance(edits, BlockSizeMismatch)
        for event in batch:
            twin.apply(event)
        _compare(agent, twin, at_unit, edits)
        if lengths is not None:
            twin.lengths = set(lengths)
            _compare(agent, twin, at_unit, agent.use_lengths(np.array(lengths, dtype=np.int32), 1 << 62))


def _compare(
    agent: Holdings, twin: NaiveHoldings, at_unit: dict[int, int], edits: tuple[ShardEdits, ...]
) -> None:
    for edit in edits:
        assert edit.tiers
        assert (shard_of(np.array(list(edit.tiers), dtype=np.uint64), SHARDS) == edit.shard).all()
        for key, tier in edit.tiers.items():
            assert at_unit.get(key, 0) != tier, "an edit changes something"
            at_unit[key] = tier
            if not tier:
                del at_unit[key]
    assert at_unit == twin.held()
    assert agent.blocks == len(twin.blocks)
    assert agent.detached == sum(twin.chain(block_hash) is None for block_hash in twin.blocks)
    reported: dict[int, int] = {}
    for shard in range(SHARDS):
        keys, tiers = agent.report(shard)
        reported |= dict(zip(keys.tolist(), tiers.tolist(), strict=True))
        assert agent.digest(shard) == holdings_digest(keys, tiers)
        assert agent.count(shard) == len(keys)
    assert reported == at_unit


@settings(max_examples=150, deadline=None)
@given(sensible_events(), CUTS, st.sampled_from(RepeatedStores))
def test_residency_follows_an_engine(
    events: list[EngineNews], cuts: list[tuple[int, list[int] | None]], repeated: RepeatedStores
) -> None:
    check(events, cuts, repeated)


@settings(max_examples=200, deadline=None)
@given(NONSENSE, CUTS, st.sampled_from(RepeatedStores))
def test_no_stream_of_events_breaks_it(
    events: list[EngineNews], cuts: list[tuple[int, list[int] | None]], repeated: RepeatedStores
) -> None:
    check(events, cuts, repeated)


@settings(max_examples=80, deadline=None)
@given(sensible_events(), st.integers(0, 3), st.integers(1, 8))
def test_bounds_hold_and_only_withhold(events: list[EngineNews], detached: int, blocks: int) -> None:
    """Within its bounds a tree claims nothing a boundless one would not."""
    bounded = holdings(RepeatedStores.IDEMPOTENT, TreeLimits(blocks=blocks, detached=detached))
    twin = NaiveHoldings(NAMESPACE, BLOCK, LENGTHS, counted=False)
    for event in events:
        bounded.apply([event])
        twin.apply(event)
        assert bounded.blocks <= blocks
        assert bounded.detached <= detached
        truth = twin.held()
        for shard in range(SHARDS):
            keys, tiers = bounded.report(shard)
            for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True):
                assert truth[key] <= tier, "never better than it is"


def test_a_run_that_is_cut_behind_its_last_key_is_hashed_anew_when_it_grows() -> None:
    """Its running hash stood behind the key: at the block that left."""
    tokens = list(range(10))
    check(
        [
            stored([1, 2, 3, 4, 5], None, tokens, None),
            BlockRemoved((4,), None),
            stored([4], 3, tokens[6:8], None),
            BlockRemoved((5,), None),
            BlockRemoved((4,), None),
            BlockRemoved((3,), None),
            stored([3, 4], 2, tokens[4:8], None),
        ],
        [(stop, None) for stop in range(8)],
    )


def test_a_run_that_is_cut_above_where_others_parted_from_it_is_hashed_anew() -> None:
    """A running hash was kept at its end, for prompts parted there."""
    ends = [stored([6], 5, [1, 1], None), stored([7], 5, [2, 2], None)]
    check(
        [
            stored([1, 2, 3, 4, 5], None, list(range(10)), None),
            *ends,
            BlockRemoved((6, 7, 5), None),
            stored([8, 9], 4, [5, 5, 6, 6], None),
        ],
        [(stop, None) for stop in range(6)],
    )


def test_detached_blocks_beyond_the_bound_are_dropped_oldest_first() -> None:
    agent = holdings(limits=TreeLimits(detached=2))
    for orphan in (10, 11, 12):
        agent.apply([stored([orphan], orphan + 100, [0, 1], None)])
    assert agent.detached == 2
    assert agent.tree.dropped_blocks == 1
    agent.apply([stored([111], None, [1, 1], None)])
    assert len(agent) == 2
    agent.apply([stored([110], None, [0, 0], None)])
    assert len(agent) == 3, "its child was the one dropped"


def test_a_full_tree_refuses_blocks_and_says_so() -> None:
    agent = holdings(limits=TreeLimits(blocks=1))
    agent.apply([stored([1, 2], None, [0, 0, 1, 1], None)])
    assert (agent.blocks, agent.tree.refused_blocks) == (1, 1)
