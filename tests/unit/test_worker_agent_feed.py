"""The order of an engine's batches, and what a hole or a restart does to the agent's state."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineEvent,
    EngineNews,
    EventsLost,
)
from kvcompass.fleet.load import WorkerState
from kvcompass.keys import namespace
from kvcompass.levels import registered_lengths
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.engine_feed import EngineFeed, Order
from kvcompass.roles.engine_fit import EngineRefusal
from kvcompass.roles.engine_standing import Judge
from kvcompass.roles.holdings import RepeatedStores
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.worker_agent import WorkerAgent
from tests.models.agent_fleets import SALT, agent_plan
from tests.models.holdings_naive import NaiveHoldings

PLAN = agent_plan()
IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=1_000)


def block(block_hash: int, parent: int | None = None, *, size: int = 4) -> BlockStored:
    tokens = np.full(size, block_hash, dtype=np.int32)
    return BlockStored((block_hash,), parent, tokens, size, "GPU")


def attached(
    *,
    replayed: bool = True,
    repeated_stores: RepeatedStores = RepeatedStores.COUNTED,
    limits: TreeLimits | None = None,
) -> WorkerAgent:
    agent = WorkerAgent(PLAN, "us-0", epoch=1, repeated_stores=repeated_stores, limits=limits or TreeLimits())
    agent.on_engine_load(IDLE, 0)
    agent.on_engine_up(1, same_process=False)
    agent.on_attached(replayed=replayed)
    return agent


def test_orders() -> None:
    feed = EngineFeed()
    assert feed.arrived(0) is Order.NEXT
    feed.applied = 5
    assert feed.arrived(3) is Order.REPEATED
    assert feed.arrived(6) is Order.NEXT
    feed.applied = 6
    assert feed.arrived(9) is Order.HOLE
    assert feed.arrived(9) is Order.RESTARTED
    feed.reconnected()
    assert feed.arrived(4) is Order.REPEATED
    feed.reset()
    assert (feed.arrived(0), feed.applied) == (Order.NEXT, -1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=30))
def test_any_delivery_ends_where_order_does(numbers: list[int]) -> None:
    """Batches repeated, late or lost: as long as replays fill the holes, the holdings are the engine's."""
    batches: list[list[EngineEvent]] = [[block(1)], [block(2, 1)], [block(3, 2)], [AllBlocksCleared()]]
    batches += [[block(n)] for n in range(4, 10)]
    straight, shuffled = attached(), attached()
    for number, batch in enumerate(batches):
        straight.on_batch(number, batch)
    for number in [*numbers, 9]:
        for missing in range(shuffled.applied + 1, number):
            shuffled.on_batch(missing, batches[missing])
        shuffled.on_batch(number, batches[number])
    assert shuffled.state is AgentState.EXACT
    for shard in range(2):
        assert shuffled.holdings.digest(shard) == straight.holdings.digest(shard)


PATHS = st.lists(st.integers(0, 1), min_size=1, max_size=4).map(tuple)
"""Of blocks; the last one's name is the whole path."""


def chain(path: tuple[int, ...]) -> list[BlockStored]:
    hashes = [hash(path[:length]) for length in range(1, len(path) + 1)]
    return [
        BlockStored((name,), parent, np.full(4, token, dtype=np.int32), 4, None)
        for name, parent, token in zip(hashes, [None, *hashes[:-1]], path, strict=True)
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), PATHS), min_size=1, max_size=25),
    st.sets(st.integers(0, 24)),
    st.sampled_from(RepeatedStores),
)
def test_whatever_is_lost_nothing_is_claimed_that_is_not_held(
    steps: list[tuple[bool, tuple[int, ...]]], lost: set[int], repeated: RepeatedStores
) -> None:
    """Batches of one event each; the engine stores what is not resident and removes what is."""
    agent = attached(repeated_stores=repeated)
    twin = NaiveHoldings(namespace(PLAN.model, SALT), 4, registered_lengths(PLAN).tolist(), counted=False)
    sequence = 0
    for store, path in steps:
        events: list[EngineEvent] = [
            event if store else BlockRemoved(event.hashes, None)
            for event in chain(path)
            if (event.hashes[0] in twin.blocks) != store
        ]
        for event in events:
            twin.apply(event)
            if sequence not in lost:
                agent.on_batch(sequence, [event])
                claims = dict(zip(*(part.tolist() for part in everything(agent)), strict=True))
                assert claims.items() <= twin.held().items()
                if agent.state is AgentState.EXACT:
                    assert claims == twin.held()
            sequence += 1


def everything(agent: WorkerAgent) -> tuple[np.ndarray, np.ndarray]:
    keys, tiers = zip(*(agent.told.report(shard) for shard in range(PLAN.shards)), strict=True)
    return np.concatenate(keys), np.concatenate(tiers)


@pytest.mark.parametrize("removals", [True, False])
def test_what_cannot_be_understood_makes_it_partial(removals: bool) -> None:
    agent = attached()
    agent.on_batch(0, [block(1)])
    agent.on_batch(1, [EventsLost(removals), block(2)])
    assert (agent.state, len(agent.holdings)) == (AgentState.PARTIAL, 1 if removals else 2)
    agent.on_batch(2, [EventsLost(removals), AllBlocksCleared()])
    assert (agent.state, len(agent.holdings)) == (AgentState.EXACT, 0)


LEFT_OUT: dict[str, list[EngineNews]] = {
    "malformed": [BlockStored((1, 2), None, np.zeros(4, dtype=np.int32), 4, None)],
    "conflicting": [block(1, 6), block(1, 7)],
    "copied": [BlocksCopied((1,), "CPU")],
    "refused": [block(number) for number in range(1, 6)],
    "dropped": [block(number, number + 50) for number in range(1, 4)],
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_makes_it_partial(what: str) -> None:
    agent = attached(limits=TreeLimits(blocks=4, detached=2))
    agent.on_batch(0, LEFT_OUT[what])
    assert agent.state is AgentState.PARTIAL


def test_a_lost_batch_makes_it_partial_until_a_clear() -> None:
    agent = attached()
    agent.on_batch(0, [block(1)])
    assert agent.state is AgentState.EXACT
    agent.on_batch(3, [block(2)])
    assert (agent.state, agent.lost_batches, len(agent.holdings)) == (AgentState.PARTIAL, 2, 1)
    agent.on_batch(4, [AllBlocksCleared(), block(3)])
    assert (agent.state, len(agent.holdings)) == (AgentState.EXACT, 1)


def test_nothing_replayed_and_nothing_seen_is_partial_until_batch_0() -> None:
    agent = attached(replayed=False)
    assert agent.state is AgentState.PARTIAL
    agent.on_batch(0, [block(1)])
    assert agent.state is AgentState.EXACT


def test_a_block_size_mismatch_withdraws_everything_and_names_the_field() -> None:
    agent = attached()
    agent.on_batch(0, [block(1)])
    edits = agent.on_batch(1, [block(2), block(3, size=8)])
    assert [tier for edit in edits for tier in edit.tiers.values()] == [0]
    assert agent.state is AgentState.REFUSED
    assert agent.refusal is not None and agent.refusal.field == "block_size"
    load = agent.load(0)
    assert load is not None and load.state is WorkerState.DRAINING
    assert agent.on_batch(2, [block(4)]) == ()
    agent.on_engine_up(2, same_process=False)
    assert agent.state is AgentState.ATTACHING


def test_pages_of_one_token_work_where_the_plan_says_so() -> None:
    agent = WorkerAgent(agent_plan(block_size=1, quantum=2), "us-0", epoch=1)
    agent.on_batch(0, [block(1, size=1), block(2, 1, size=1), block(3, 2, size=1)])
    assert (len(agent.holdings), agent.refusal) == (1, None)


def test_an_engine_that_is_down_is_neither_vouched_for_nor_forgotten() -> None:
    agent = attached()
    agent.on_batch(0, [block(1)])
    assert agent.vouches
    agent.on_engine_down()
    load = agent.load(10)
    assert load is not None and load.state is WorkerState.UNREACHABLE
    assert (agent.state, agent.vouches, len(agent.holdings)) == (AgentState.UNREACHABLE, False, 1)
    agent.on_engine_load(IDLE, 20)
    assert (agent.state, agent.vouches) == (AgentState.ATTACHING, False), "perhaps it is another process"
    assert agent.on_engine_up(2, same_process=True) == ()
    assert agent.vouches
    agent.on_engine_down()
    agent.on_engine_load(IDLE, 30)
    (edit,) = agent.on_engine_up(3, same_process=False)
    assert list(edit.tiers.values()) == [0]
    assert (agent.epoch, agent.engine_restarts, agent.applied) == (3, 1, -1)


def test_nothing_of_a_past_that_is_being_replayed_is_told_in_any_way() -> None:
    agent = attached()
    agent.on_batch(0, [block(1)])
    agent.on_engine_up(2, same_process=False)
    assert agent.on_batch(0, [block(2)]) == ()
    finer = replace(PLAN, plan_version=2, lengths=replace(PLAN.lengths, stretch=1.4))
    assert (agent.apply_plan(finer), agent.settle_plan()) == ((), ())
    assert agent.told.count(0) + agent.told.count(1) == 0 < len(agent.holdings)
    assert agent.judge(Judge.PROBE, EngineRefusal("chat_template", "parts")) == ()
    agent.judge(Judge.PROBE, None)
    agent.on_attached(replayed=True)
    assert agent.told is agent.holdings


def test_a_cache_that_others_use_too_is_not_known_exactly() -> None:
    agent = attached()
    agent.on_batch(0, [block(1), block(1)])
    assert (agent.seen.exact, agent.seen.cached_tokens) == (True, 8)
    agent.on_batch(1, [BlockStored((2,), None, np.full(4, 2, np.int32), 4, "GPU", "salt")])
    assert (agent.seen.exact, agent.state) == (False, AgentState.EXACT)
    agent.on_batch(2, [AllBlocksCleared()])
    assert (agent.seen.exact, agent.seen.cached_tokens) == (True, 0)


def test_the_age_of_a_load_is_told() -> None:
    agent = WorkerAgent(agent_plan(), "us-0", epoch=1)
    assert agent.load(0) is None
    agent.on_engine_load(IDLE, 1_000_000)
    load = agent.load(1_250_000)
    assert load is not None and load.age_ms == 250
