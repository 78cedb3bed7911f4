"""A lease is renewed while the engine answers, and not for as long as it takes to give it up."""

from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.worker_agent import WorkerAgent
from tests.models.agent_fleets import agent_plan

IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)


def test_only_an_engine_that_answered_within_a_sixth_of_a_lease_is_renewed() -> None:
    agent = WorkerAgent(agent_plan(), "us-0", epoch=1)
    agent.on_engine_load(IDLE, 1_000_000)
    assert not agent.may_renew(1_000_000), "it may be any engine process yet"
    agent.on_engine_up(1, same_process=False)
    sixth_us = agent_plan().routing.lease_ms * 1_000 // 6
    assert agent.may_renew(1_000_000 + sixth_us)
    assert not agent.may_renew(1_000_001 + sixth_us)
    assert agent.vouches, "it may only be busy"
    agent.on_engine_load(IDLE, 2_000_000 + sixth_us)
    assert agent.may_renew(2_000_000 + sixth_us)
    agent.on_engine_down()
    assert not agent.may_renew(2_000_000 + sixth_us)


def test_what_comes_by_itself_is_as_old_as_it_is_and_renews_no_lease() -> None:
    agent = WorkerAgent(agent_plan(), "us-0", epoch=1)
    agent.on_engine_up(1, same_process=False)
    agent.on_engine_load(IDLE, 9_000_000, heard_us=8_400_000, answered_us=8_900_000)
    within_us = agent_plan().routing.lease_ms * 1_000 // 6
    assert agent.may_renew(8_900_000 + within_us)
    assert not agent.may_renew(8_900_001 + within_us)
    load = agent.load(9_000_000)
    assert load is not None and load.age_ms == 600
    assert agent.seen.heard_at_us == 8_400_000


def test_a_lease_is_not_renewed_for_holdings_whose_events_have_waited_for_longer() -> None:
    agent = WorkerAgent(agent_plan(), "us-0", epoch=1)
    lease_us = agent_plan().routing.lease_ms * 1_000
    agent.on_engine_up(1, same_process=False)
    agent.on_attached(replayed=True)
    agent.lag.waits(1_000_000)
    agent.on_engine_load(IDLE, 1_000_000 + lease_us // 6)
    assert agent.may_renew(1_000_000 + lease_us // 6)
    agent.lag.waits(1_000_000 + lease_us // 6)
    assert not agent.may_renew(1_000_001 + lease_us // 6), "more events do not make the first younger"
    assert (agent.state, agent.vouches) == (AgentState.EXACT, True)
    agent.on_engine_load(IDLE, 1_000_001 + lease_us)
    assert (agent.state, agent.vouches) == (AgentState.ATTACHING, False)
    agent.lag.all_taken()
    agent.on_engine_load(IDLE, 1_000_001 + lease_us)
    assert (agent.state, agent.vouches) == (AgentState.EXACT, True)
    assert agent.may_renew(1_000_001 + lease_us)
    agent.lag.waits(2_000_000 + lease_us)
    assert agent.lag.us(2_000_000 + lease_us) == 0
