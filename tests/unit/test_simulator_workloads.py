"""Laws of every source of requests."""

import tracemalloc
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import SimulationError
from simulator.fleets import load_fleet
from simulator.request import Request
from simulator.source import RequestSource
from simulator.workloads import WORKLOADS, Arrivals, WorkloadOptions, build_source, data_folder
from simulator.workloads.arrivals.bursty import Bursty
from simulator.workloads.arrivals.poisson import Poisson
from simulator.workloads.arrivals.times import ArrivalTimes

FLEET = load_fleet("testbed-14")
GENERATED = sorted(WORKLOADS)


def requests(source: RequestSource) -> list[Request]:
    return list(iter(source.next, None))


def made(
    workload: str,
    count: int,
    seed: int = 1,
    rate_per_s: float = 20.0,
    arrivals: Arrivals = "poisson",
    tenants: int = 50,
) -> list[Request]:
    options = WorkloadOptions(tenants=tenants)
    return requests(
        build_source(
            workload,
            fleet=FLEET,
            rate_per_s=rate_per_s,
            seed=seed,
            count=count,
            arrivals=arrivals,
            options=options,
        )
    )


def bytes_of(found: list[Request]) -> list[tuple[object, ...]]:
    return [
        (
            one.id,
            one.arrives_us,
            one.region,
            one.prompt.tobytes(),
            one.answer.tobytes(),
            one.tenant,
            one.family,
        )
        for one in found
    ]


@pytest.mark.parametrize("workload", GENERATED)
def test_the_same_seed_gives_the_same_requests_and_another_seed_others(workload: str) -> None:
    first, again, other = (bytes_of(made(workload, 100, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("workload", GENERATED)
def test_requests_are_well_formed_and_in_order(workload: str) -> None:
    found = made(workload, 400)
    assert [one.id for one in found] == list(range(400))
    assert all(a.arrives_us <= b.arrives_us for a, b in pairwise(found))
    for one in found:
        assert one.prompt.dtype == one.answer.dtype == np.int32
        assert one.prompt.size > 0
        assert one.answer.size > 0
        assert one.prompt.min() >= 0
        assert 0 <= one.region < FLEET.regions
        assert one.prompt.size + one.answer.size <= FLEET.plan.model.context_length


def test_regions_are_drawn_by_the_fleets_weights() -> None:
    found = made("azure-code", 6_000, rate_per_s=100)
    shares = np.bincount([one.region for one in found], minlength=FLEET.regions) / len(found)
    assert shares == pytest.approx(FLEET.origin_weights, abs=0.02)


def test_tenants_share_nothing_with_one_another_and_a_system_prompt_within() -> None:
    found = made("mixed", 1_500)
    starts: dict[int, set[bytes]] = {}
    for one in found:
        starts.setdefault(one.tenant, set()).add(one.prompt[:32].tobytes())
    assert sorted(starts) == list(range(50))
    assert all(len(start) == 1 for start in starts.values())
    assert len(set.union(*starts.values())) == 50
    assert {one.tenant for one in made("mixed", 50, tenants=0)} == {0}


def test_poisson_arrivals_have_exponential_gaps_of_the_rate() -> None:
    times = Poisson(40, seed=1)
    gaps = np.diff([times.next_us() for _ in range(20_000)]) / 1e6
    assert gaps.mean() == pytest.approx(1 / 40, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 40, rel=0.03)
    for share in (0.25, 0.5, 0.9):
        assert np.quantile(gaps, share) == pytest.approx(-np.log(1 - share) / 40, rel=0.05)


def test_bursts_keep_the_mean_rate_and_vary_more_than_poisson() -> None:
    def counts(times: ArrivalTimes) -> np.ndarray:
        return np.bincount([times.next_us() // 1_000_000 for _ in range(200_000)])[:-1]

    calm, bursty = counts(Poisson(40, seed=1)), counts(Bursty(40, seed=1))
    assert bursty.mean() == pytest.approx(40, rel=0.05)
    assert calm.var() / calm.mean() == pytest.approx(1, abs=0.1)
    # Rates of 5/7 and 15/7 of the mean, the higher for a fifth of the time. If the rate changed only between
    # seconds, a second's count would have the variance 40 + 40**2 * (0.8 * (2/7)**2 + 0.2 * (8/7)**2).
    most = 1 + 40 * (0.8 * (2 / 7) ** 2 + 0.2 * (8 / 7) ** 2)
    assert 0.7 * most < bursty.var() / bursty.mean() < 1.1 * most


def test_open_loops_end_when_asked_to_and_nothing_waits_for_an_end() -> None:
    source = build_source("wildchat", fleet=FLEET, rate_per_s=10, seed=1, count=3)
    first = source.next()
    assert first is not None
    assert source.ended(first, first.arrives_us + 1) is None
    assert len(requests(source)) == 2


def test_a_run_begins_with_conversations_under_way() -> None:
    def mean(settled: bool) -> float:
        options = WorkloadOptions(tenants=0, settled=settled)
        source = build_source("lmsys", fleet=FLEET, rate_per_s=100, seed=1, count=500, options=options)
        return float(np.mean([one.prompt.size for one in requests(source)]))

    assert mean(settled=True) > 1.5 * mean(settled=False)


def test_the_only_user_of_a_closed_loop_takes_turns_that_contain_the_ones_before() -> None:
    options = WorkloadOptions(users=1, think_s=2.0)
    source = build_source(
        "wildchat", fleet=FLEET, rate_per_s=0, seed=1, count=300, arrivals="closed", options=options
    )
    found = [source.next()]
    assert source.next() is None
    while (last := found[-1]) is not None:
        found.append(source.ended(last, last.arrives_us + 1_000))
    asked = [one for one in found if one is not None]
    assert [one.id for one in asked] == list(range(300))
    later = 0
    for before, after in pairwise(asked):
        assert after.arrives_us >= before.arrives_us + 1_000
        said = np.concatenate((before.prompt, before.answer))
        if np.array_equal(after.prompt[: said.size], said):
            later += 1
            assert (after.region, after.tenant) == (before.region, before.tenant)
    # 2.5 turns a conversation: 0.6 of all turns are later ones.
    assert later / 300 == pytest.approx(0.6, abs=0.1)


def test_a_closed_loop_has_one_request_a_user_under_way() -> None:
    options = WorkloadOptions(users=7, think_s=1.0)
    source = build_source(
        "mixed", fleet=FLEET, rate_per_s=0, seed=1, count=50, arrivals="closed", options=options
    )
    waiting = list(islice(iter(source.next, None), 100))
    assert len(waiting) == 7
    assert waiting[0].arrives_us == 0
    assert max(one.arrives_us for one in waiting) < 1e6
    ended = 0
    while waiting:
        one = waiting.pop(0)
        ended += 1
        following = source.ended(one, one.arrives_us + 5_000)
        if following is not None:
            waiting.append(following)
            assert len(waiting) == 7
    assert ended == 50


@pytest.mark.parametrize("workload", ["mixed", "lmsys"])
def test_memory_does_not_grow_with_the_number_of_requests(workload: str) -> None:
    source = build_source(workload, fleet=FLEET, rate_per_s=20, seed=1)

    def held(count: int) -> int:
        for _ in islice(iter(source.next, None), count):
            pass
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        early = held(1_000)
        late = held(5_000)
    finally:
        tracemalloc.stop()
    # 5,000 prompts of 900 tokens and more would be above 18 MB.
    assert late - early < 4e6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workload": "mixd"}, "'mixd' is no workload: take "),
        ({"arrivals": "regular"}, "'regular' is no arrival process"),
        ({"arrivals": "recorded"}, "mixed was not recorded"),
        ({"rate_per_s": 0.0}, "0 is no rate"),
        ({"rate_per_s": float("nan")}, "nan is no rate"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_reason(change: dict[str, object], says: str) -> None:
    asked = {"workload": "mixed", "fleet": FLEET, "rate_per_s": 1.0, "seed": 1} | change
    with pytest.raises(SimulationError, match=says):
        build_source(**asked)  # type: ignore[arg-type]


def test_the_data_folder_must_be_one(tmp_path: Path) -> None:
    assert data_folder({}) is None
    assert data_folder({"KVCOMPASS_DATA": str(tmp_path)}) == tmp_path
    with pytest.raises(SimulationError, match="not a folder"):
        data_folder({"KVCOMPASS_DATA": str(tmp_path / "none")})
