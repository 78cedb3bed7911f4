"""lambda_0 against an engine that is given more than it can do, and against what follows from its formula."""

from dataclasses import replace

import numpy as np
import pytest

from kvcompass.engine_model import Engine, EngineConfig, EngineRequest, Scheduling
from simulator.fleet import Fleet
from simulator.fleets import FleetOptions, load_fleet
from simulator.workloads import WorkloadOptions, build_workload, capacity_of
from simulator.workloads.capacity import Sample, no_reuse_capacity, sample_lengths

ONE = load_fleet("scale-1x1")


def saturated_rate(config: EngineConfig, sample: Sample) -> float:
    """Requests a second of an engine that has all of them from the beginning and can reuse none."""
    engine = Engine(config)
    for i, (prompt, answer) in enumerate(zip(sample.prompts, sample.answers, strict=True)):
        tokens = np.full(prompt, 1_000_000 + i, np.int32)
        engine.submit(EngineRequest(str(i), tokens, np.zeros(answer, np.int32)), 0)
    now_us = 0
    while (due_us := engine.next_deadline_us()) is not None:
        now_us = due_us
        engine.advance(now_us)
        engine.take_progress()
        engine.take_batches()
    return len(sample.prompts) / (now_us / 1e6)


@pytest.mark.parametrize("scheduling", Scheduling)
@pytest.mark.parametrize(
    ("sample", "bound"),
    [
        (Sample([3_000, 500, 900, 6_000] * 60, [12] * 240), "prefill"),
        (Sample([700, 2_100] * 200, [150] * 400), "prefill"),
        (Sample([200] * 800, [400] * 800), "decode"),
    ],
)
def test_an_engine_that_has_more_than_it_can_do_does_lambda_0(
    scheduling: Scheduling, sample: Sample, bound: str
) -> None:
    # A cache that holds few requests fills up soon, so that little of the run is its beginning and its end.
    config = replace(ONE.engines[0], scheduling=scheduling, cache_tokens=40_000, host_cache_tokens=0)
    capacity = no_reuse_capacity(replace(ONE, engines=(config,)), sample)
    assert capacity.bound == bound
    assert saturated_rate(config, sample) == pytest.approx(capacity.rate_per_s, rel=0.12)


@pytest.mark.parametrize("workload", ["mixed", "wildchat"])
def test_lengths_that_go_together_are_counted_as_a_batch_meets_them(workload: str) -> None:
    """Means of prompts and answers apart are 4 % off for Mixed, whose long prompts have short answers, and
    7 % for WildChat, whose long answers fill the batch."""
    sample = sample_lengths(build_workload(workload, fleet=ONE, seed=1), 6_000)
    capacity = no_reuse_capacity(ONE, sample)
    assert ONE.engines[0].scheduling is Scheduling.CHUNKED
    assert saturated_rate(ONE.engines[0], sample) == pytest.approx(capacity.rate_per_s, rel=0.03)


def test_memory_limits_how_many_decode() -> None:
    sample = Sample([1_800] * 10, [200] * 10)
    engines = (ONE.engines[0], replace(ONE.engines[0], cache_tokens=10_000))
    roomy, tight = (no_reuse_capacity(replace(ONE, engines=(one,)), sample) for one in engines)
    assert tight.decode_per_s < roomy.decode_per_s / 10
    assert tight.prefill_per_s == roomy.prefill_per_s


def test_linear_rates_give_the_rate_that_the_paper_would_compute() -> None:
    fleet = load_fleet("scale-6x2", FleetOptions(timing="linear"))
    beta_ms = fleet.plan.workers[0].prefill_ms_per_token
    capacity = no_reuse_capacity(fleet, Sample([1_000, 3_000], [1, 1]))
    assert capacity.rate_per_s == pytest.approx(6 * 1e3 / (beta_ms * 2_000))
    assert capacity.prefill_ms == pytest.approx(beta_ms * 2_000)
    assert capacity.prefill_cv2 == pytest.approx(0.25)


def test_capacity_grows_with_the_workers() -> None:
    few, many = (capacity_of("mixed", fleet=load_fleet(name)) for name in ("scale-8x4", "scale-64x8"))
    assert many.rate_per_s == pytest.approx(8 * few.rate_per_s)


def test_decoders_of_their_own_are_counted_apart() -> None:
    fleet = load_fleet("pd-10")
    sample = Sample([400] * 10, [300] * 10)
    without = no_reuse_capacity(Fleet(fleet.name, fleet.plan, fleet.engines, fleet.origin_weights), sample)
    apart = no_reuse_capacity(fleet, sample)
    assert apart.prefill_per_s == without.prefill_per_s
    assert apart.decode_per_s == pytest.approx(without.decode_per_s * 3 / 7)


def test_a_sample_has_all_turns_of_its_conversations() -> None:
    options = WorkloadOptions(tenants=0)
    sample = sample_lengths(build_workload("lmsys", fleet=ONE, seed=1, options=options), 4_000)
    assert 4_000 <= len(sample.prompts) == len(sample.answers) < 4_200
    # The k-th turn, k being 2 on average, has k messages of 70 tokens and k - 1 answers of 215.
    assert np.mean(sample.prompts) == pytest.approx(2 * 70 + 215, rel=0.15)


def test_the_spread_of_mixed_is_like_the_papers() -> None:
    """Its Fig. 9 has a squared coefficient of variation of 5.4 of the service time on Mixed."""
    assert 4 < capacity_of("mixed", fleet=ONE).prefill_cv2 < 8
