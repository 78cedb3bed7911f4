"""Regions that cannot reach each other go on by themselves, and agree again once they can."""

import itertools

import pytest

from lab.fleet import Fleet
from tests.e2e.asking import (
    REGIONS,
    ask,
    comes_to_choose,
    comes_true,
    explain,
    knows,
    knows_nothing,
    new_prompt,
    seen_everywhere,
    terms,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_partition_costs_no_request_and_heals(quick_lab: Fleet) -> None:
    lab = quick_lab
    before, during = new_prompt(), new_prompt()
    holder = ask(lab, "us", before).headers["x-kvcompass-worker"]
    assert seen_everywhere(lab, holder, before, knows)
    assert comes_to_choose(lab, "asia", before, holder)

    ways = list(itertools.permutations(REGIONS, 2))
    for origin, destination in ways:
        lab.partition(origin, destination, cut=True)
    try:
        worker = ask(lab, "us", during).headers["x-kvcompass-worker"]
        assert worker.startswith("worker-us")
        # Both shards are across the water. What asia saw last it still sees, and says that it may be old.
        assert comes_true(lambda: set(explain(lab, "asia", during)["shards_not_exact"]) == {"0", "1"}, 15.0)
        assert knows_nothing(explain(lab, "asia", during), worker)
        assert comes_true(
            lambda: terms(explain(lab, "asia", before), holder)["standing"] != "known", limit_s=15.0
        )
        assert ask(lab, "asia", before).headers["x-kvcompass-region"] == "asia"
    finally:
        for origin, destination in ways:
            lab.partition(origin, destination, cut=False)

    assert seen_everywhere(lab, worker, during, knows)
    for region in REGIONS:
        assert comes_true(lambda: agrees(lab, region, during), limit_s=15.0)  # noqa: B023
    assert comes_to_choose(lab, "asia", during, worker)


def agrees(lab: Fleet, region: str, prompt: list[int]) -> bool:
    """Whether the region's view is exact, and it knows how busy every worker is."""
    explanation = explain(lab, region, prompt)
    standings = {worker["standing"] for worker in explanation["workers"]}
    return not explanation["shards_not_exact"] and standings == {"known"}
