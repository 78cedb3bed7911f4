"""Who is first, where KVCompass is not, and why."""

from dataclasses import replace

import pytest

from simulator.results.figures import RunFigures
from simulator.results.metrics import ALL_METRICS
from simulator.results.parts import Parts
from simulator.results.percentiles import Percentiles
from simulator.results.ranking import RANKED, losses
from simulator.results.rows import rows
from tests.models.simulated_runs import PLAIN, run, slower


def test_rows_put_the_seeds_of_a_policy_and_load_together() -> None:
    runs = [
        run(policy, slower(PLAIN, seed), load=load, seed=seed)
        for seed in (3, 1, 2)
        for load in (0.5, 0.9)
        for policy in ("a", "b")
    ]
    found = rows(runs)
    assert [(row.load, row.policy) for row in found] == [(0.5, "a"), (0.5, "b"), (0.9, "a"), (0.9, "b")]
    for row in found:
        assert row.seeds == (1, 2, 3)
        assert [each.ttft_ms.p50 for each in row.runs] == [100.0, 200.0, 300.0]
        spread = row.figures["ttft_p50_ms"]
        assert spread is not None
        assert (spread.value, spread.seeds) == (200.0, 3)
        assert set(row.figures) == {metric.name for metric in ALL_METRICS}


def test_the_share_of_the_bound_is_of_the_same_seed_and_load() -> None:
    runs = [
        run("ours", slower(PLAIN, 4.0), load=load, seed=seed) for load in (0.5, 0.9) for seed in (1, 2)
    ] + [
        run("clairvoyant", slower(PLAIN, seed), load=load, seed=seed, bound=True)
        for load in (0.5, 0.9)
        for seed in (1, 2)
        if (load, seed) != (0.9, 2)
    ]
    both, one = (row.figures["bound_ttft_pct"] for row in rows(runs) if row.policy == "ours")
    assert both is not None
    assert (both.value, both.seeds) == (pytest.approx(37.5), 2)
    assert one is not None
    assert (one.value, one.seeds) == (pytest.approx(25.0), 1)


def test_without_a_bound_nothing_is_said_of_it() -> None:
    (row,) = rows([run("ours")])
    assert row.figures["bound_ttft_pct"] is None


def test_who_is_first_everywhere_has_lost_nothing_and_bounds_rank_nowhere() -> None:
    runs = [run("kvcompass"), run("worse", slower(PLAIN, 2.0)), run("bound", slower(PLAIN, 0.5), bound=True)]
    assert losses(rows(runs), "kvcompass") == []
    assert losses(rows(runs), "nobody") == []


def test_a_tie_is_a_first_place() -> None:
    assert losses(rows([run("other"), run("kvcompass")]), "kvcompass") == []


def test_every_figure_in_which_another_is_ahead_is_listed() -> None:
    better = replace(slower(PLAIN, 0.5), output_tokens_per_s=30_000.0)
    ours = run("kvcompass", replace(PLAIN, requests_per_s=98.0))
    found = losses(rows([ours, run("better", better), run("worse", slower(PLAIN, 2))]), "kvcompass")
    assert [loss.metric.name for loss in found] == [m.name for m in ALL_METRICS if m.name in RANKED]
    assert {loss.winner for loss in found} == {"better"}
    assert [(loss.ours, loss.best) for loss in found][:2] == [(100.0, 50.0), (400.0, 200.0)]
    assert {loss.clear for loss in found} == {None}, "one seed tells nothing of chance"


@pytest.mark.parametrize(("theirs", "clear"), [((90.0, 91.0, 92.0), True), ((90.0, 112.0, 95.0), False)])
def test_a_lead_is_clear_where_it_is_beyond_what_seeds_do(theirs: tuple[float, ...], clear: bool) -> None:
    def figures(p50: float) -> RunFigures:
        return replace(PLAIN, ttft_ms=Percentiles(120.0, p50, 200.0, 400.0))

    runs = [
        run(policy, figures(p50), seed=seed)
        for policy, values in (("kvcompass", (100.0, 101.0, 103.0)), ("other", theirs))
        for seed, p50 in enumerate(values)
    ]
    (loss,) = losses(rows(runs), "kvcompass")
    assert loss.metric.name == "ttft_p50_ms"
    assert loss.clear is clear


def test_the_reason_names_the_part_that_took_longer_and_what_was_reused() -> None:
    ours = replace(PLAIN, parts_slowest=Parts(50.0, 500.0, 150.0, 900.0), reused_tokens=1_000_000)
    theirs = replace(
        PLAIN,
        ttft_ms=Percentiles(120.0, 100.0, 200.0, 300.0),
        parts_slowest=Parts(45.0, 100.0, 250.0, 100.0),
        peak_load_factor=1.0,
    )
    (loss,) = losses(rows([run("kvcompass", ours), run("other", theirs)]), "kvcompass")
    assert loss.metric.name == "ttft_p99_ms"
    assert loss.reason == (
        "+400 ms waiting at engines; -100 ms prefilling; -50% reused tokens; +20% peak load factor"
    )


def test_what_is_many_times_as_much_is_told_so_and_a_long_answer_is_a_reason() -> None:
    ours = replace(PLAIN, parts_longest=Parts(50.0, 50.0, 50.0, 5_900.0), wan_bytes=100 * PLAIN.wan_bytes)
    theirs = replace(PLAIN, e2e_ms=Percentiles(2_000.0, 1_500.0, 3_000.0, 4_000.0))
    (loss,) = losses(rows([run("kvcompass", ours), run("other", theirs)]), "kvcompass")
    assert loss.reason == "+1,000 ms decoding; 100.0 times the bytes over the WAN"


def test_a_throughput_is_lost_by_what_all_requests_take() -> None:
    ours = replace(PLAIN, parts=Parts(40.0, 220.0, 60.0, 1_900.0), requests_per_s=98.0)
    theirs = replace(PLAIN, output_tokens_per_s=21_000.0)
    (loss,) = losses(rows([run("kvcompass", ours), run("other", theirs)]), "kvcompass")
    assert (loss.metric.name, loss.reason) == ("output_tokens_per_s", "+200 ms waiting at engines")
    keeps_up = replace(ours, requests_per_s=ours.offered_per_s)
    assert losses(rows([run("kvcompass", keeps_up), run("other", theirs)]), "kvcompass") == []
