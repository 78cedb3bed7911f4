"""Regions that cannot reach each other go on by themselves, and agree again once they can."""

import pytest

from lab.fleet import Fleet
from tests.e2e.asking import ask, explain, match_at, new_prompt, seconds_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_partition_costs_no_request_and_heals(lab: Fleet) -> None:
    others = [(one, other) for one in ("us", "eu") for other in ("us", "eu", "asia") if one != other]
    pairs = [*others, *((other, one) for one, other in others if (other, one) not in others)]
    for origin, destination in pairs:
        lab.partition(origin, destination, cut=True)
    try:
        prompt = new_prompt()
        worker = ask(lab, "us", prompt).headers["x-kvcompass-worker"]
        assert ask(lab, "asia", new_prompt(500)).headers["x-kvcompass-region"] == "asia"
    finally:
        for origin, destination in pairs:
            lab.partition(origin, destination, cut=False)
    assert worker.startswith("worker-us")
    assert seconds_until(lambda: match_at(lab, "asia", worker, prompt) > 0, limit_s=15.0) < 15.0
    assert seconds_until(lambda: not explain(lab, "asia", prompt)["shards_not_exact"], limit_s=15.0) < 15.0
