"""Laws of every source of requests."""

from itertools import pairwise

import numpy as np
import pytest

from simulator.fleets import load_fleet
from simulator.request import Request
from simulator.source import RequestSource
from simulator.workloads import build_source

FLEET = load_fleet("paper-64")


def requests(source: RequestSource) -> list[Request]:
    found = []
    while (request := source.next()) is not None:
        found.append(request)
    return found


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


@pytest.mark.parametrize("workload", ["mixed", "wildchat", "lmsys"])
def test_the_same_seed_gives_the_same_requests_and_another_seed_others(workload: str) -> None:
    first, again, other = (
        bytes_of(requests(build_source(workload, fleet=FLEET, rate_per_s=500, seed=seed, count=200)))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("workload", ["mixed", "wildchat", "lmsys"])
def test_requests_are_well_formed_and_in_order(workload: str) -> None:
    found = requests(build_source(workload, fleet=FLEET, rate_per_s=500, seed=3, count=2_000))
    assert [one.id for one in found] == list(range(2_000))
    assert all(a.arrives_us <= b.arrives_us for a, b in pairwise(found))
    for one in found:
        assert one.prompt.dtype == one.answer.dtype == np.int32
        assert one.prompt.size > 0
        assert one.answer.size > 0
        assert one.prompt.min() >= 0
        assert 0 <= one.region < FLEET.regions
    rate = 1_999e6 / (found[-1].arrives_us - found[0].arrives_us)
    assert rate == pytest.approx(500, rel=0.1)
