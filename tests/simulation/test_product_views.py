"""A view that is brought up to date when it is read says what one says that applies messages as they come."""

import pytest

from kvcompass.routing.names import PolicyName
from simulator.fleets import load_fleet
from simulator.product import product_rival
from tests.simulation.runs import fingerprint, simulated

FLEET = load_fleet("testbed-14")


@pytest.mark.parametrize("policy", ["kvcompass", "regional", "round_robin"])
def test_shared_views_and_faithful_ones_decide_alike(policy: PolicyName) -> None:
    shared = simulated(FLEET, product_rival(policy), count=400, rate_per_s=40)
    faithful = simulated(FLEET, product_rival(policy, faithful=True), count=400, rate_per_s=40)
    assert fingerprint(shared) == fingerprint(faithful)
    assert shared.records.column("cached_tokens").sum() > 0


def test_seeds_differ() -> None:
    runs = {
        fingerprint(simulated(FLEET, product_rival("kvcompass"), count=50, rate_per_s=40, seed=seed))
        for seed in (1, 2)
    }
    assert len(runs) == 2
