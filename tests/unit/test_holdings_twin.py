"""Holdings against the naive twin, on event streams an engine would send and on streams none should."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineEvent,
    EngineNews,
    EventsLost,
)
from kvcompass.keys import namespace, shard_of
from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.holdings import BlockSizeMismatch, Holdings, RepeatedStores
from tests.models.agent_fleets import agent_plan
from tests.models.holdings_naive import NaiveHoldings

BLOCK = 2
SHARDS = 3
LENGTHS = (2, 4, 8, 12)
NAMESPACE = namespace(agent_plan().model, "")
MEDIA = st.sampled_from([None, "GPU", "CPU", "CPU_PINNED", "DISK"])


def holdings(repeated: RepeatedStores = RepeatedStores.COUNTED, limits: TreeLimits | None = None) -> Holdings:
    return Holdings(
        NAMESPACE,
        salt="",
        block_size=BLOCK,
        lengths=np.array(LENGTHS, dtype=np.int32),
        shards=SHARDS,
        repeated_stores=repeated,
        limits=limits or TreeLimits(),
    )


def stored(hashes: list[int], parent: int | None, tokens: list[int], medium: str | None) -> BlockStored:
    return BlockStored(tuple(hashes), parent, np.array(tokens, dtype=np.int32), BLOCK, medium)


@st.composite
def sensible_events(draw: st.DrawFn) -> list[EngineEvent]:
    """Prefixes over two tokens, named as an engine would: one hash a path. Chains come, blocks leave."""
    events: list[EngineEvent] = []
    paths = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=7)
    for _ in range(draw(st.integers(1, 12))):
        path = draw(paths)
        hashes = [hash_of(path[: i + 1]) for i in range(len(path))]
        medium = draw(MEDIA)
        match draw(st.sampled_from(["store", "store", "extend", "remove", "evict", "clear"])):
            case "store":
                events.append(stored(hashes, None, list(itertools.chain(*path)), medium))
            case "extend":
                parent = hashes[-2] if len(hashes) > 1 else None
                events.append(stored(hashes[-1:], parent, list(path[-1]), medium))
            case "remove":
                events.append(BlockRemoved((hashes[-1],), medium))
            case "evict":
                events.append(BlockRemoved(tuple(hashes), medium))
            case _:
                events.append(AllBlocksCleared())
    return events


def hash_of(path: list[tuple[int, int]]) -> int:
    return int("1" + "".join(f"{a}{b}" for a, b in path), 2)


HASHES = st.integers(0, 6)
NONSENSE = st.lists(
    st.one_of(
        st.builds(
            stored,
            st.lists(HASHES, min_size=0, max_size=3),
            st.none() | HASHES,
            st.lists(st.integers(0, 1), max_size=6),
            MEDIA,
        ),
        st.builds(
            lambda block_hash, parent, pair, medium: stored([block_hash], parent, list(pair), medium),
            HASHES,
            st.none() | HASHES,
            st.tuples(st.integers(0, 1), st.integers(0, 1)),
            MEDIA,
        ),
        st.builds(lambda hashes, medium: BlockRemoved(tuple(hashes), medium), st.lists(HASHES), MEDIA),
        st.just(AllBlocksCleared()),
        st.builds(EventsLost, st.booleans()),
    ),
    max_size=25,
)


def check(events: list[EngineNews], cuts: list[int], repeated: RepeatedStores) -> None:
    """Apply the events in batches; after each, everything a unit could know must equal the twin's truth."""
    agent = holdings(repeated)
    twin = NaiveHoldings(NAMESPACE, BLOCK, LENGTHS, counted=repeated is RepeatedStores.COUNTED)
    at_unit: dict[int, int] = {}
    for start, stop in itertools.pairwise([0, *sorted(cuts), len(events)]):
        batch = events[start:stop]
        edits = agent.apply(batch)
        assert not isinstance(edits, BlockSizeMismatch)
        for event in batch:
            twin.apply(event)
        for edit in edits:
            assert edit.tiers
            assert (shard_of(np.array(list(edit.tiers), dtype=np.uint64), SHARDS) == edit.shard).all()
            for key, tier in edit.tiers.items():
                assert at_unit.get(key, 0) != tier, "an edit changes something"
                at_unit[key] = tier
        at_unit = {key: tier for key, tier in at_unit.items() if tier}
        assert at_unit == twin.held()
        assert agent.blocks == len(twin.blocks)
        assert agent.detached == sum(twin.chain(block_hash) is None for block_hash in twin.blocks)
        reported = {}
        for shard in range(SHARDS):
            keys, tiers = agent.report(shard)
            reported |= dict(zip(keys.tolist(), tiers.tolist(), strict=True))
            assert agent.digest(shard) == holdings_digest(keys, tiers)
            assert agent.count(shard) == len(keys)
        assert reported == at_unit


@settings(max_examples=100, deadline=None)
@given(sensible_events(), st.data(), st.sampled_from(RepeatedStores))
def test_residency_follows_an_engine(
    events: list[EngineEvent], data: st.DataObject, repeated: RepeatedStores
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(events)), max_size=4))
    check(events, cuts, repeated)


@settings(max_examples=150, deadline=None)
@given(NONSENSE, st.data(), st.sampled_from(RepeatedStores))
def test_no_stream_of_events_breaks_it(
    events: list[EngineNews], data: st.DataObject, repeated: RepeatedStores
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(events)), max_size=4))
    check(events, cuts, repeated)


@settings(max_examples=80, deadline=None)
@given(sensible_events(), st.integers(0, 3), st.integers(1, 8))
def test_bounds_hold_and_only_withhold(events: list[EngineEvent], detached: int, blocks: int) -> None:
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
        list(range(8)),
        RepeatedStores.COUNTED,
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
