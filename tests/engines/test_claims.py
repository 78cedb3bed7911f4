"""What an edge claims of an engine's cache is reused; what is reused beyond that is less than a rung."""

from itertools import pairwise

import pytest

from tests.engines.asking import (
    Served,
    ask,
    ask_body,
    claim,
    claim_of_body,
    eventually,
    longer,
    new_prompt,
    until_claimed,
    until_heard,
)
from tests.engines.engine import CONTEXT_TOKENS
from tests.engines.fleet import REGIONS, WORKER, EngineFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def served_then_longer(fleet: EngineFleet, prefix_tokens: int, claimed: int) -> Served:
    """Serves a new prefix, waits until it is known as far as it must be, and asks for more than it."""
    prefix = new_prompt(prefix_tokens)
    first = ask(fleet, prefix)
    assert (first.claimed, first.reused, first.worker) == (0, 0, WORKER)
    prompt = longer(prefix)
    until_claimed(fleet, prompt, claimed)
    return ask(fleet, prompt)


def test_at_every_registered_length_the_claim_is_kept_and_the_gap_is_below_the_next(
    fleet: EngineFleet,
) -> None:
    assert len(fleet.lengths) > 10
    for length, following in pairwise([*fleet.lengths, CONTEXT_TOKENS]):
        for prefix_tokens in {length, following - fleet.engine.page_tokens}:
            served = served_then_longer(fleet, prefix_tokens, claimed=length)
            assert served.worker == WORKER
            assert served.claimed == length, "what every edge knew was not claimed"
            assert served.claimed <= served.reused < following, served


def test_nothing_is_claimed_above_the_top(fleet: EngineFleet) -> None:
    top = fleet.lengths[-1]
    assert top + 3 * fleet.engine.page_tokens < CONTEXT_TOKENS
    served = served_then_longer(fleet, top + 3 * fleet.engine.page_tokens, claimed=top)
    assert served.claimed == top
    assert served.reused == top + 3 * fleet.engine.page_tokens


def test_below_the_first_claimed_length_nothing_is_claimed_and_little_reused(fleet: EngineFleet) -> None:
    prefixes = [new_prompt(fleet.guard - 1), new_prompt(fleet.guard), new_prompt(fleet.lengths[0] - 1)]
    for prefix in prefixes:
        ask(fleet, prefix)
    until_heard(fleet)
    for prefix in prefixes:
        prompt = longer(prefix, tokens=fleet.lengths[0])
        assert [claim(fleet, region, prompt) for region in REGIONS] == [0, 0]
        served = ask(fleet, prompt)
        assert served.claimed == 0
        assert 0 < served.reused < fleet.lengths[0]


def test_where_prompts_part_only_what_is_common_is_claimed(fleet: EngineFleet) -> None:
    second = fleet.lengths[1]
    common = new_prompt(second + fleet.engine.page_tokens + 3)
    first = [*common, *new_prompt(fleet.lengths[4])]
    ask(fleet, first)
    until_claimed(fleet, first, max(length for length in fleet.lengths if length <= len(first)))
    served = ask(fleet, [*common, *new_prompt(fleet.lengths[4])])
    assert served.claimed == second
    assert served.reused == second + fleet.engine.page_tokens


def test_an_answer_belongs_to_what_the_next_turn_is_claimed_to_have(fleet: EngineFleet) -> None:
    """What an engine generates it keeps: a chat's next turn holds the answer of the one before."""
    opening = {"role": "user", "content": "Count the rivers of the north. " * 40}
    first = ask_body(fleet, "chat/completions", {"messages": [opening], "max_tokens": 48})
    until_heard(fleet)
    turn = [opening, {"role": "assistant", "content": first.text}, {"role": "user", "content": "And?"}]
    body = {"messages": turn}
    reach = max(length for length in fleet.lengths if length <= first.prompt_tokens - 1)
    eventually(
        fleet,
        lambda: all(claim_of_body(fleet, region, body) >= reach for region in REGIONS),
        "the first turn is known",
    )
    second = ask_body(fleet, "chat/completions", body)
    following = min(length for length in fleet.lengths if length > second.claimed)
    assert reach <= second.claimed <= second.reused < following
