"""Generators against what is published of what they stand for, and where they ask from."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simulator.fleet import Fleet
from simulator.fleets import load_fleet
from simulator.request import Request
from simulator.workloads import WorkloadOptions, build_source, build_workload
from simulator.workloads.reuse import EndlessCache

PAPER_64 = load_fleet("paper-64")


def conversations(name: str, count: int, fleet: Fleet = PAPER_64, tenants: int = 0) -> list[list[Request]]:
    """Whole conversations, without system prompts unless tenants are asked for."""
    workload = build_workload(name, fleet=fleet, seed=7, options=WorkloadOptions(tenants=tenants))
    found = []
    for _ in range(count):
        turn = workload.opening(0, 0)
        assert turn is not None
        requests = [turn.request]
        while turn.rest is not None:
            turn = turn.rest.turn(0, 0)
            requests.append(turn.request)
        found.append(requests)
    return found


def messages(conversation: list[Request]) -> list[int]:
    """Tokens of each message: of a prompt what neither the prompt before nor its answer was."""
    before = [0, *(one.prompt.size + one.answer.size for one in conversation)]
    return [one.prompt.size - start for one, start in zip(conversation, before, strict=False)]


@pytest.mark.parametrize(
    ("name", "turns", "message", "answer"),
    [
        # WildChat, ICLR 2024, Table 2; LMSYS-Chat-1M, ICLR 2024, Table 1.
        ("wildchat", 2.5, 296, 441),
        ("lmsys", 2.0, 70, 215),
        # The Mooncake trace's own means: 12,031 requests of 8,349 sessions.
        ("mooncake", 12_031 / 8_349, None, 342.6),
    ],
)
def test_chat_has_the_published_turns_messages_and_answers(
    name: str, turns: float, message: float | None, answer: float
) -> None:
    found = conversations(name, 6_000)
    flat = [one for conversation in found for one in conversation]
    assert len(flat) / len(found) == pytest.approx(turns, rel=0.06)
    assert np.mean([one.answer.size for one in flat]) == pytest.approx(answer, rel=0.06)
    if message is not None:
        lengths = [length for conversation in found for length in messages(conversation)]
        assert np.mean(lengths) == pytest.approx(message, rel=0.12)


def test_a_mooncake_like_trace_has_the_traces_prompt_lengths_and_one_block_for_all() -> None:
    flat = [one for conversation in conversations("mooncake", 8_000) for one in conversation]
    lengths = np.array([one.prompt.size for one in flat])
    assert lengths.mean() == pytest.approx(12_035, rel=0.1)
    assert np.median(lengths) == pytest.approx(6_909, rel=0.1)
    assert np.quantile(lengths, 0.99) == pytest.approx(85_400, rel=0.15)
    assert len({one.prompt[:512].tobytes() for one in flat}) == 1
    assert len({one.prompt[:576].tobytes() for one in flat}) > 5_000


def test_azure_like_traces_have_the_traces_lengths_and_share_nothing() -> None:
    # Means and medians of AzureLLMInferenceTrace_conv and _code (2023).
    for name, mean, median, answer in (("azure-conv", 1_155, 1_020, 211), ("azure-code", 2_048, 1_469, 28)):
        flat = [one for conversation in conversations(name, 8_000) for one in conversation]
        lengths = [one.prompt.size for one in flat]
        assert np.mean(lengths) == pytest.approx(mean, rel=0.1)
        assert np.median(lengths) == pytest.approx(median, rel=0.1)
        assert np.mean([one.answer.size for one in flat]) == pytest.approx(answer, rel=0.1)
        assert len({int(one.prompt[0]) for one in flat}) == len(flat)


def test_mixed_has_the_papers_shares_of_requests() -> None:
    source = build_source("mixed", fleet=PAPER_64, rate_per_s=300, seed=3, count=20_000)
    kinds = Counter(one.category for one in iter(source.next, None))
    assert kinds["tools"] / 20_000 == pytest.approx(0.50, abs=0.02)
    assert kinds["document"] / 20_000 == pytest.approx(0.05, abs=0.006)
    assert kinds["programming"] / 20_000 == pytest.approx(0.45, abs=0.02)


def test_tool_tasks_of_one_list_share_it_and_their_later_turns_contain_the_earlier_ones() -> None:
    tasks = [found for found in conversations("mixed", 4_000) if found[0].category == "tools"]
    assert np.mean([len(found) for found in tasks]) == pytest.approx(4.0, abs=0.2)
    for found in tasks[:50]:
        for before, after in pairwise(found):
            said = np.concatenate((before.prompt, before.answer))
            assert np.array_equal(after.prompt[: said.size], said)
    by_list: dict[str, list[Request]] = {}
    for found in tasks:
        by_list.setdefault(found[0].family, []).append(found[0])
    pairs = [some for some in by_list.values() if len(some) > 1]
    assert pairs
    assert all(np.array_equal(a.prompt[:400], b.prompt[:400]) for a, b, *_ in pairs)


def test_wildchat_starts_where_its_countries_users_are_nearest() -> None:
    """Shares of the six countries that are published, at the regions that stand for them."""
    found = [conversation[0].region for conversation in conversations("wildchat", 8_000)]
    shares = dict(zip(PAPER_64.plan.regions, np.bincount(found, minlength=8) / len(found), strict=True))
    listed = 75.7  # percent of all conversations come from the fifteen countries of the table
    assert shares["ap-east-1"] == pytest.approx((24.8 + 3.4) / listed, abs=0.02)  # China and Hong Kong
    assert shares["us-east-1"] == pytest.approx((11.7 + 3.6) / listed, abs=0.02)  # United States and Canada
    assert shares["ap-northeast-2"] < 0.02  # nobody of Korea is among them


def test_where_a_regions_place_is_not_known_wildchat_starts_by_the_fleets_weights() -> None:
    elsewhere = replace(PAPER_64.plan, regions=("mars", *PAPER_64.plan.regions[1:]))
    found = conversations("wildchat", 6_000, fleet=replace(PAPER_64, plan=elsewhere))
    shares = np.bincount([conversation[0].region for conversation in found], minlength=8) / len(found)
    assert shares == pytest.approx(PAPER_64.origin_weights, abs=0.02)


@pytest.mark.parametrize(
    ("name", "tenants", "least", "most"),
    [
        # The paper's Fig. 9 has 42 % less residual prefill on Mixed at its best, and its Fig. 13, without
        # tenants, reuses 73 to 83 %.
        ("mixed", 50, 0.5, 0.75),
        # The k-th turn, k being 2.5 on average, has k messages of 296 tokens and k - 1 answers of 441; all
        # but the last message were there before: 1.5 * 737 / (2.5 * 296 + 1.5 * 441) = 0.79.
        ("wildchat", 0, 0.72, 0.82),
        # The trace has 0.37.
        ("mooncake", 0, 0.3, 0.45),
        ("azure-conv", 0, 0.0, 0.0),
    ],
)
def test_an_endless_cache_reuses_as_much_as_is_known_of_the_kind(
    name: str, tenants: int, least: float, most: float
) -> None:
    cache = EndlessCache(64)
    for conversation in conversations(name, 3_000, tenants=tenants):
        for one in conversation:
            cache.ask(one.prompt, one.answer)
    assert least <= cache.reuse.ratio <= most


def test_an_endless_cache_knows_whole_blocks_from_the_beginning_on() -> None:
    cache = EndlessCache(4)
    text = np.arange(40, dtype=np.int32)
    assert cache.ask(text[:10], text[10:14]) == 0
    assert cache.ask(text[:16]) == 12, "prompt and answer are 14 tokens: three whole blocks"
    assert cache.ask(text[4:12]) == 0, "the same blocks elsewhere are other blocks"
    assert cache.ask(text[:16]) == 16
    assert (cache.reuse.requests, cache.reuse.blocks, cache.reuse.reused_blocks) == (4, 2 + 4 + 2 + 4, 3 + 4)
    assert cache.reuse.ratio == 28 / 50
