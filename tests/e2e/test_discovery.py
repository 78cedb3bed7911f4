"""What one region's cache holds is known in the others soon, and forgotten when it goes."""

import statistics

import httpx
import pytest

from lab.fleet import Fleet
from tests.e2e.asking import REGIONS, ask, explain, match_at, new_prompt, seconds_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_prompt_served_in_one_region_is_found_from_another_within_a_second(lab: Fleet) -> None:
    delays = []
    for _ in range(3):
        prompt = new_prompt()
        worker = ask(lab, "us", prompt).headers["x-kvcompass-worker"]
        delays.append(seconds_until(lambda: match_at(lab, "eu", worker, prompt) > 0, limit_s=5.0))  # noqa: B023
        found = explain(lab, "eu", prompt)
        assert (found["chosen"], found["claim"] > 4_384) == (worker, True)
    # Counted from the end of the answer, which is later than the event.
    assert statistics.median(delays) <= 1.0


def test_the_engine_reuses_what_another_region_s_edge_claims(lab: Fleet) -> None:
    prompt = new_prompt()
    worker = ask(lab, "asia", prompt).headers["x-kvcompass-worker"]
    assert seconds_until(lambda: match_at(lab, "eu", worker, prompt) > 0, limit_s=5.0) < 5.0
    answer = ask(lab, "eu", prompt)
    assert answer.headers["x-kvcompass-worker"] == worker
    assert answer.headers["x-kvcompass-region"] == "asia"
    claim = int(answer.headers["x-kvcompass-match-tokens"])
    assert 4_384 <= claim <= answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_short_prefix_is_not_worth_the_way(lab: Fleet) -> None:
    prompt = new_prompt(1_000)
    worker = ask(lab, "us", prompt).headers["x-kvcompass-worker"]
    assert seconds_until(lambda: match_at(lab, "us", worker, prompt) > 0, limit_s=5.0) < 5.0
    assert explain(lab, "us", prompt)["chosen"] == worker
    assert explain(lab, "eu", prompt)["region"] == "eu"


def test_evicting_changes_every_region_s_decision(lab: Fleet) -> None:
    prompt = new_prompt()
    worker = ask(lab, "us", prompt).headers["x-kvcompass-worker"]
    for region in REGIONS:
        assert seconds_until(lambda: match_at(lab, region, worker, prompt) > 0, limit_s=5.0) < 5.0  # noqa: B023
    assert explain(lab, "eu", prompt)["chosen"] == worker
    url = next(each.url for each in lab.blueprint.plan.workers if each.id == worker)
    flushed = seconds_until(lambda: httpx.post(f"{url}/flush_cache").status_code == 200, limit_s=5.0)
    assert flushed < 5.0
    for region in REGIONS:
        assert seconds_until(lambda: match_at(lab, region, worker, prompt) == 0, limit_s=5.0) < 5.0  # noqa: B023
    assert explain(lab, "eu", prompt)["region"] == "eu"


def test_killing_the_engine_changes_every_region_s_decision(lab: Fleet) -> None:
    prompt = new_prompt()
    worker = ask(lab, "asia", prompt).headers["x-kvcompass-worker"]
    assert seconds_until(lambda: match_at(lab, "eu", worker, prompt) > 0, limit_s=5.0) < 5.0
    assert explain(lab, "eu", prompt)["chosen"] == worker
    lab.process(worker).kill()
    for region in REGIONS:
        gone = seconds_until(lambda: match_at(lab, region, worker, prompt) == 0, limit_s=8.0)  # noqa: B023
        assert gone < 8.0
        assert explain(lab, region, prompt)["chosen"] != worker
    lab.restart(worker)
