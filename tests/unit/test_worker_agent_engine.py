"""What an engine says of itself, or fails to say, and what that does to the agent beside it."""

from dataclasses import replace

import numpy as np
import pytest

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcompass.engine_facts import EngineFacts, EventPublisher
from kvcompass.fleet.load import WorkerState
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels import registered_lengths
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.engine_fit import EngineRefusal
from kvcompass.roles.engine_standing import Judge
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.worker_agent import WorkerAgent
from kvcompass.tier import Tier
from tests.models.agent_fleets import SALT, agent_plan

SECOND = 1_000_000
PLAN = agent_plan(block_size=16, quantum=32, context_length=512, stretch=0.75)
FACTS = EngineFacts(
    "sglang",
    "0.5.23",
    page_size=16,
    tells_publisher=True,
    publisher=EventPublisher("tcp://*:5557", "tcp://*:5657"),
)
PROMPT = np.arange(100, 400, dtype=np.int32)
BUSY = EngineLoad(running=1, waiting=0, used_tokens=0, max_tokens=1_000)


def stored(page_size: int, medium: str | None = "GPU") -> BlockStored:
    """The whole pages of the prompt."""
    count = len(PROMPT) // page_size
    return BlockStored(tuple(range(1, count + 1)), None, PROMPT[: count * page_size], page_size, medium)


def agent_of(facts: EngineFacts | None = FACTS) -> WorkerAgent:
    agent = WorkerAgent(PLAN, "us-0", epoch=1)
    agent.on_engine_load(BUSY, 0)
    if facts is not None:
        agent.on_engine_facts(facts)
    agent.on_engine_up(1, same_process=False)
    agent.on_attached(replayed=True)
    return agent


def claims(agent: WorkerAgent) -> dict[int, int]:
    reports = [agent.told.report(shard) for shard in range(PLAN.shards)]
    return {
        key: tier for keys, tiers in reports for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True)
    }


def keys_up_to(tokens: int) -> set[int]:
    """What an edge asks for, at every length of the plan up to so many tokens."""
    lengths = registered_lengths(PLAN)
    space = namespace(PLAN.model, SALT)
    return set(prefix_keys(space, PROMPT, lengths[lengths <= tokens]).tolist())


@pytest.mark.parametrize("told", [True, False], ids=["facts", "events alone"])
@pytest.mark.parametrize("page_size", [1, 2, 8, 16, 32])
def test_any_pages_that_divide_the_quantum_register_what_edges_ask_for(page_size: int, told: bool) -> None:
    agent = agent_of(replace(FACTS, page_size=page_size) if told else None)
    agent.on_batch(0, [AllBlocksCleared(), stored(page_size)])
    assert agent.state is AgentState.EXACT
    assert set(claims(agent)) == keys_up_to(len(PROMPT) // page_size * page_size)
    agent.on_batch(1, [BlockRemoved((64 // page_size,), "GPU")])
    assert set(claims(agent)) == keys_up_to(64 - page_size)


def test_an_upgraded_engine_with_other_pages_is_learned_anew() -> None:
    agent = agent_of()
    agent.on_batch(0, [stored(16)])
    before = claims(agent)
    agent.on_engine_facts(replace(FACTS, page_size=8))
    agent.on_engine_up(2, same_process=False)
    assert claims(agent) == {}
    agent.on_batch(0, [stored(8)])
    agent.on_attached(replayed=True)
    assert claims(agent) == before


def test_pages_of_two_sizes_in_one_process_are_refused() -> None:
    agent = agent_of(None)
    agent.on_batch(0, [stored(16)])
    agent.on_batch(1, [stored(8)])
    assert (agent.state, claims(agent)) == (AgentState.REFUSED, {})
    assert agent.refusal is not None and agent.refusal.field == "block_size"
    agent.on_engine_up(2, same_process=True)
    assert agent.state is AgentState.REFUSED, "the same process has the same pages"
    agent.on_engine_up(3, same_process=False)
    assert agent.refusal is None


def test_a_batch_of_two_sizes_is_refused_whichever_comes_first() -> None:
    for sizes in ((16, 8), (8, 16)):
        agent = agent_of(None)
        agent.on_batch(0, [stored(size) for size in sizes])
        assert (agent.state, claims(agent)) == (AgentState.REFUSED, {})


@pytest.mark.parametrize(
    ("version", "host_tier", "tier"),
    [
        ("0.5.10", True, Tier.DRAM),
        ("0.5.10", False, Tier.VRAM),
        ("0.5.11", True, Tier.VRAM),
        ("", True, Tier.DRAM),
    ],
)
def test_who_does_not_tell_tiers_and_has_two_holds_all_in_dram(
    version: str, host_tier: bool, tier: Tier
) -> None:
    """SGLang 0.5.10 says Stored(GPU), and Removed when a block leaves the host: meanwhile it is in either."""
    agent = agent_of(replace(FACTS, version=version, host_tier=host_tier))
    agent.on_batch(0, [stored(16)])
    assert set(claims(agent).values()) == {tier}
    agent.on_batch(1, [BlockRemoved(stored(16).hashes, "GPU")])
    assert claims(agent) == {}


def test_a_refusal_by_facts_is_lifted_by_other_facts_and_learned_from_the_start() -> None:
    agent = agent_of()
    agent.on_batch(0, [stored(16)])
    withdrawn = agent.on_engine_facts(replace(FACTS, dp_size=2))
    assert {tier for edit in withdrawn for tier in edit.tiers.values()} == {0}
    assert agent.state is AgentState.REFUSED
    load = agent.load(0)
    assert load is not None and load.state is WorkerState.DRAINING
    agent.on_engine_facts(FACTS)
    agent.on_engine_up(1, same_process=True)
    assert agent.applied == -1, "what it knew was forgotten"
    agent.on_batch(0, [stored(16)])
    agent.on_attached(replayed=True)
    assert set(claims(agent)) == keys_up_to(len(PROMPT) // 16 * 16)
    assert agent.engine_restarts == 0


def test_judges_speak_for_themselves() -> None:
    agent = agent_of()
    agent.judge(Judge.PROBE, EngineRefusal("chat_template", "parts at token 7"))
    agent.on_engine_facts(FACTS)
    agent.on_engine_up(2, same_process=False)
    assert agent.refusal is not None and agent.refusal.field == "chat_template"
    agent.judge(Judge.PROBE, None)
    assert agent.refusal is None


def test_a_missing_publisher_is_silent_and_named() -> None:
    plan = replace(PLAN, workers=(replace(PLAN.workers[0], events=""),))
    agent = WorkerAgent(plan, "us-0", epoch=1)
    agent.on_engine_load(BUSY, 0)
    agent.on_engine_facts(replace(FACTS, publisher=None))
    assert agent.state is AgentState.SILENT
    assert "--kv-events-config '{" in agent.engine.silence
    assert not agent.vouches
    load = agent.load(0)
    assert load is not None and load.state is WorkerState.READY, "it is served by its load"
    agent.on_engine_facts(FACTS)
    assert agent.state is AgentState.ATTACHING


def test_a_wedged_publisher_is_not_vouched_for_until_it_speaks() -> None:
    agent = agent_of()
    agent.on_batch(0, [stored(16)])
    agent.engine.on_replay(answered=True)
    known = claims(agent)
    for second in range(1, 15):
        agent.on_engine_load(BUSY, second * SECOND)
        agent.engine.on_replay(answered=False)
    assert (agent.state, agent.vouches, agent.may_renew(15 * SECOND)) == (AgentState.SILENT, False, False)
    assert agent.engine.silence.endswith("restart it")
    agent.engine.on_replay(answered=True)
    assert (agent.state, agent.vouches) == (AgentState.EXACT, True)
    assert claims(agent) == known, "the same process: nothing was forgotten meanwhile"


def test_predicted_holdings_are_vouched_for_empty_whatever_the_engine_says() -> None:
    plan = replace(PLAN, workers=(replace(PLAN.workers[0], holdings="predicted"),))
    agent = WorkerAgent(plan, "us-0", epoch=1)
    assert not agent.vouches
    agent.on_engine_load(BUSY, 0)
    agent.on_engine_facts(replace(FACTS, publisher=None))
    assert (agent.state, agent.vouches, agent.may_renew(0)) == (AgentState.APPROXIMATE, True, True)
    agent.on_engine_up(1, same_process=False)
    agent.on_batch(0, [stored(16)])
    assert claims(agent) == {}
    agent.on_engine_down()
    assert (agent.state, agent.vouches) == (AgentState.UNREACHABLE, False)
