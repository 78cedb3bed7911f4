"""What leaves an engine's cache is claimed no longer, in any region."""

import pytest

from tests.engines.asking import (
    ask,
    claim,
    flush,
    longer,
    new_prompt,
    until_agent,
    until_claimed,
    until_heard,
)
from tests.engines.engine import CACHE_TOKENS
from tests.engines.fleet import REGIONS, EngineFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_flush_withdraws_everything_everywhere(fleet: EngineFleet) -> None:
    length = fleet.lengths[3]
    prompts = [new_prompt(length) for _ in range(3)]
    for prompt in prompts:
        ask(fleet, prompt)
    for prompt in prompts:
        until_claimed(fleet, prompt, length)
    flush(fleet)
    for prompt in prompts:
        until_claimed(fleet, prompt, 0)
    until_agent(fleet, "exact")
    served = ask(fleet, longer(prompts[0]))
    assert (served.claimed, served.reused) == (0, 0)
    until_claimed(fleet, prompts[0], length)


def test_what_is_evicted_under_pressure_is_withdrawn_and_the_rest_is_true(fleet: EngineFleet) -> None:
    flush(fleet)
    length = fleet.lengths[8]
    prompts = [new_prompt(length) for _ in range(2 * CACHE_TOKENS // length)]
    for prompt in prompts:
        ask(fleet, prompt)
    until_heard(fleet)
    until_claimed(fleet, prompts[0], 0)
    # The newest first: whoever is asked again pushes out another, and the oldest are gone anyhow.
    claims = []
    for prompt in reversed(prompts):
        until_heard(fleet)
        claimed = {claim(fleet, region, prompt) for region in REGIONS}
        served = ask(fleet, longer(prompt))
        assert {served.claimed} == claimed
        assert served.claimed <= served.reused
        following = [each for each in fleet.lengths if each > served.claimed]
        assert served.reused < following[0]
        claims.append(served.claimed)
    assert max(claims) == length
    assert min(claims) == 0
    until_agent(fleet, "exact")
