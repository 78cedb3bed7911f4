"""What one region's cache holds is known in the others soon, and forgotten when it goes."""

import asyncio
import time

import pytest

from lab.fleet import Fleet
from tests.e2e.asking import (
    HTTP,
    ask,
    comes_to_choose,
    comes_true,
    engine_url,
    explain,
    knows,
    knows_nothing,
    new_prompt,
    seen_everywhere,
    watch_everywhere,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_prompt_served_in_one_region_is_found_from_every_other_within_a_second(
    full_scale_lab: Fleet,
) -> None:
    def slowest_s() -> float:
        prompt = new_prompt(4_000)
        worker = ask(full_scale_lab, "us", prompt, max_tokens=1).headers["x-kvcompass-worker"]
        # The prompt's event and its only token leave the engine together.
        answered = time.monotonic()
        found = asyncio.run(watch_everywhere(full_scale_lab, worker, [prompt], knows))
        assert comes_to_choose(full_scale_lab, "eu", prompt, worker)
        return max(found.values()) - answered

    slowest_s()  # Every way has been used once: what follows is not the first request of a cold process.
    # A machine may stall once, not twice.
    assert slowest_s() <= 1.0 or slowest_s() <= 1.0


def test_the_engine_reuses_what_another_region_s_edge_claims(quick_lab: Fleet) -> None:
    prompt = new_prompt()
    worker = ask(quick_lab, "asia", prompt).headers["x-kvcompass-worker"]
    assert seen_everywhere(quick_lab, worker, prompt, knows)
    assert comes_to_choose(quick_lab, "eu", prompt, worker)
    answer = ask(quick_lab, "eu", prompt)
    assert answer.headers["x-kvcompass-worker"] == worker
    assert answer.headers["x-kvcompass-region"] == "asia"
    claim = int(answer.headers["x-kvcompass-match-tokens"])
    assert claim == explain(quick_lab, "eu", prompt)["lengths"][-1]
    assert claim <= answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_short_prefix_is_not_worth_the_way(quick_lab: Fleet) -> None:
    prompt = new_prompt(1_000)
    worker = ask(quick_lab, "us", prompt).headers["x-kvcompass-worker"]
    assert comes_true(lambda: knows(explain(quick_lab, "us", prompt), worker), 15.0)
    assert comes_to_choose(quick_lab, "us", prompt, worker)
    assert explain(quick_lab, "eu", prompt)["region"] == "eu"


def test_evicting_changes_every_region_s_decision(quick_lab: Fleet) -> None:
    prompt = new_prompt()
    worker = ask(quick_lab, "us", prompt).headers["x-kvcompass-worker"]
    assert seen_everywhere(quick_lab, worker, prompt, knows)
    assert comes_to_choose(quick_lab, "eu", prompt, worker)
    flush = f"{engine_url(quick_lab, worker)}/flush_cache"
    assert comes_true(lambda: HTTP.post(flush).status_code == 200, 15.0)
    assert seen_everywhere(quick_lab, worker, prompt, knows_nothing)
    assert explain(quick_lab, "eu", prompt)["region"] == "eu"
