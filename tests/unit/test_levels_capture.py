"""Captured savings: the arithmetic of bench.ladder against loops, and what the default ladder must reach."""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.ladder import __main__ as tool
from bench.ladder.capture import credited, measure
from bench.ladder.mooncake import mooncake
from bench.ladder.network import Network, by_distance, cloudping, from_file, paper_testbed
from bench.ladder.optimum import best_list
from bench.ladder.rules import Rule, ladder_rule, paper_rule, plan_of, shared
from bench.ladder.sweep import Setting, chosen
from bench.ladder.synthetic import chat, mixed_like, mooncake_like
from bench.ladder.workload import Workload, replay
from kvcompass.levels import ladder
from kvcompass.plan.model import LengthRule

PREFILL_MS = 0.073
CONTEXT = 131_072
PAIR = Network("pair", "", ("a", "b"), np.array([[0.0, 20.0], [20.0, 0.0]]))

matches = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 500)), min_size=1, max_size=12)
lengths = st.lists(st.integers(1, 3_000), max_size=6, unique=True).map(sorted)


def workload(pairs: list[tuple[int, int]]) -> Workload:
    matched = np.array([match for match, _ in pairs], np.int64)
    return Workload("w", "", matched + [more for _, more in pairs], matched)


@given(matches, lengths)
def test_captured_savings_are_what_the_words_say(pairs: list[tuple[int, int]], listed: list[int]) -> None:
    one = workload(pairs)
    exact = sum(max(0.0, PREFILL_MS * match - 20) for match, _ in pairs)
    if exact == 0:
        return
    got = 0.0
    for match, _ in pairs:
        credit = max((length for length in listed if length <= match), default=0)
        got += max(0.0, PREFILL_MS * credit - 20)
    found = measure(shared("", "", listed), one, PAIR, PREFILL_MS)
    assert found.share == found.least == pytest.approx(got / exact)
    assert found.saved_ms == pytest.approx(got / len(pairs))
    assert found.keys == pytest.approx(np.mean([sum(c <= m + e for c in listed) for m, e in pairs]))


@given(matches, lengths, st.integers(1, 3_000))
def test_another_length_never_captures_less(
    pairs: list[tuple[int, int]], listed: list[int], more: int
) -> None:
    found, longer = np.array(sorted({*listed})), np.array(sorted({*listed, more}))
    matched = workload(pairs).matched
    assert (credited(matched, longer) >= credited(matched, found)).all()
    assert (credited(matched, longer) <= matched).all()


@settings(deadline=None, max_examples=30)
@given(matches, st.sampled_from((0.001, 0.05, 0.2)))
def test_no_list_beats_the_best_one(pairs: list[tuple[int, int]], price: float) -> None:
    one = workload(pairs)
    if one.matched.max() * PREFILL_MS <= 20:
        return
    grid = list(range(500, 3_001, 500))

    def worth(rule: Rule) -> float:
        found = measure(rule, one, PAIR, PREFILL_MS)
        return found.share - price * found.keys

    best = worth(best_list(one, PAIR, PREFILL_MS, 3_500, 500, price))
    for size in range(1, len(grid) + 1):
        for listed in itertools.combinations(grid, size):
            assert worth(shared("", "", list(listed))) <= best + 1e-9


@given(st.lists(st.lists(st.integers(0, 1), max_size=5), min_size=1, max_size=8))
def test_replay_finds_the_longest_prefix_of_any_earlier_request(prompts: list[list[int]]) -> None:
    requests = [(4 * len(p) + 1, [tuple(p[: i + 1]) for i in range(len(p))]) for p in prompts]
    found = replay("w", "", requests, block=4)
    for i, prompt in enumerate(prompts):
        equal = [
            n for n in range(len(prompt) + 1) if any(prompt[:n] == earlier[:n] for earlier in prompts[:i])
        ]
        assert found.matched[i] == 4 * max(equal, default=0)


def test_a_ladder_credits_nothing_below_first_length_nor_its_guard() -> None:
    plan = plan_of(paper_testbed(), LengthRule(), CONTEXT, PREFILL_MS)
    rule = ladder_rule(plan, LengthRule().stretch, LengthRule().quantum)
    assert rule.registered.tolist() == list(ladder(LengthRule(), CONTEXT))
    assert rule.queried(0, 0)[0] == 256
    assert rule.queried(0, 1)[0] == 4_608


@pytest.mark.parametrize(("make", "aim"), [(mooncake_like, 0.88), (mixed_like, 0.90), (chat, 0.85)])
def test_the_default_ladder_reaches_its_aim_on_made_up_traffic(
    make: Callable[[], Workload], aim: float
) -> None:
    traffic = make()
    for network in (by_distance(), paper_testbed()):
        default, paper = chosen(Setting(network, PREFILL_MS, CONTEXT))
        assert default.keys_of(4_096) <= 16, "whatever the number of regions"
        found = measure(default, traffic, network, PREFILL_MS)
        assert found.share >= aim
        assert found.share > measure(paper, traffic, network, PREFILL_MS).share


def test_what_the_paper_registers_grows_with_the_regions() -> None:
    eight = by_distance()
    few = Network("three", "", eight.regions[:3], eight.round_trip_ms[:3, :3])
    sizes = [
        paper_rule(plan_of(network, LengthRule(), CONTEXT, PREFILL_MS), 6).registered.size
        for network in (few, eight)
    ]
    assert sizes[0] < sizes[1]


def test_a_wan_file_takes_the_other_way_and_leaves_out_the_unmeasured(tmp_path: Path) -> None:
    file = tmp_path / "wan.csv"
    file.write_text("from,a,b,c\na,,10,\nb,14,,\nc,,,\n", "utf-8")
    network = from_file(file)
    assert network.regions == ("a", "b")
    assert network.round_trip_ms[0, 1] == network.round_trip_ms[1, 0] == 12
    file.write_text("from,a,b\na,,\nb,7,\n", "utf-8")
    assert from_file(file).round_trip_ms[0, 1] == 7


def test_the_tool_weighs_a_fleets_own_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ({"prompt_tokens": 1_000 * i, "matched_tokens": 900 * i} for i in range(1, 9))
    own, wan, out = tmp_path / "own.jsonl", tmp_path / "wan.csv", tmp_path / "out" / "ladder.json"
    own.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    wan.write_text("from,a,b\na,,40\nb,40,\n", "utf-8")
    arguments = ["ladder", "--matches", str(own), "--wan", str(wan), "--context", "16384", "--json", str(out)]
    monkeypatch.setattr("sys.argv", arguments)
    tool.main()
    found = json.loads(out.read_text("utf-8"))
    assert found["keys_4096"] == 14
    assert 0 < found["capture"]["own"]["paper"] < found["capture"]["own"]["ladder"] <= 1
    assert out.with_suffix(".svg").read_text("utf-8").startswith("<svg")


@pytest.mark.data
def test_the_default_ladder_reaches_its_aim_on_the_real_trace() -> None:
    named = os.environ.get("KVCOMPASS_DATA")
    if named is None:
        pytest.skip("KVCOMPASS_DATA is not set")
    network = cloudping(Path(named) / tool.CLOUDPING, 16)
    trace = mooncake(Path(named) / tool.TRACE)
    default, paper = chosen(Setting(network, PREFILL_MS, CONTEXT))
    assert default.keys_of(4_096) <= 16
    assert measure(default, trace, network, PREFILL_MS).share >= 0.88
    assert measure(paper, trace, network, PREFILL_MS).share == pytest.approx(0.31, abs=0.03)
