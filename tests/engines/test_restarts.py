"""Agents and engines that end and come back: what is known afterwards is what is held."""

import pytest

from tests.engines.asking import (
    agent,
    ask,
    flush,
    longer,
    new_prompt,
    until_agent,
    until_claimed,
    until_heard,
    until_served_here,
)
from tests.engines.engine import RING_BATCHES, MakeEngine
from tests.engines.fleet import SPARE, WORKER, EngineFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def held_at(fleet: EngineFleet, length: int) -> list[int]:
    """A prompt of that length that the engine holds and every edge knows."""
    prompt = new_prompt(length)
    ask(fleet, prompt)
    until_claimed(fleet, prompt, length)
    return prompt


def kept(fleet: EngineFleet, prompt: list[int]) -> bool:
    """Whether what is claimed of a prompt now is reused. Asks for it."""
    served = ask(fleet, longer(prompt))
    return served.worker == WORKER and served.claimed <= served.reused


def test_a_restarted_agent_learns_everything_again_from_the_engines_replay(fleet: EngineFleet) -> None:
    flush(fleet)
    length = fleet.lengths[5]
    prompts = [held_at(fleet, length) for _ in range(3)]
    fleet.kill_agent()
    for prompt in prompts:
        until_claimed(fleet, prompt, 0)  # Its lease has ended: what follows is not what was left.
    fleet.start_agent()
    for prompt in prompts:
        until_claimed(fleet, prompt, length)
    until_agent(fleet, "exact")
    until_served_here(fleet)
    assert kept(fleet, prompts[0])


def test_a_replay_that_is_too_short_is_said_and_heals_with_a_flush(fleet: EngineFleet) -> None:
    flush(fleet)
    length = fleet.lengths[5]
    early = held_at(fleet, length)
    for _ in range(RING_BATCHES):
        ask(fleet, new_prompt(2 * fleet.engine.page_tokens))
    late = held_at(fleet, length)
    fleet.kill_agent()
    until_claimed(fleet, late, 0)
    fleet.start_agent()
    until_claimed(fleet, late, length)
    until_agent(fleet, "partial")
    until_claimed(fleet, early, 0)
    until_served_here(fleet)
    # Less may be known than is held, never more.
    assert kept(fleet, early)
    assert kept(fleet, late)
    flush(fleet)
    until_agent(fleet, "exact")
    until_claimed(fleet, late, 0)
    held_at(fleet, length)


def test_an_engine_that_restarts_in_place_is_forgotten_and_learned_anew(fleet: EngineFleet) -> None:
    length = fleet.lengths[5]
    before = [held_at(fleet, length) for _ in range(2)]
    epoch = agent(fleet)["epoch"]
    fleet.engine.kill()
    fleet.engine.start()
    until_agent(fleet, "exact")
    for prompt in before:
        until_claimed(fleet, prompt, 0)
    assert agent(fleet)["epoch"] > epoch
    until_served_here(fleet)
    assert (served := ask(fleet, longer(before[0]))).reused == served.claimed == 0
    until_claimed(fleet, before[0], length)
    assert kept(fleet, before[0])


def test_a_killed_engine_is_forgotten_and_its_successor_of_another_version_is_learned(
    fleet: EngineFleet, successor: MakeEngine
) -> None:
    length = fleet.lengths[5]
    prompt = held_at(fleet, length)
    fleet.engine.kill()
    until_claimed(fleet, prompt, 0)
    until_agent(fleet, "unreachable")
    assert ask(fleet, new_prompt(10)).worker == SPARE
    fleet.replace(successor)
    until_agent(fleet, "exact")
    until_claimed(fleet, prompt, 0)
    until_served_here(fleet)
    assert ask(fleet, prompt).reused == 0
    until_claimed(fleet, prompt, length)
    assert kept(fleet, prompt)
    until_heard(fleet)
