"""Prefill and decode apart: the router picks the prefill worker, the answer is decoded in its region."""

import numpy as np

from simulator.decoders import TRANSFER_US_PER_TOKEN
from simulator.fleets import FleetOptions, load_fleet
from simulator.product import product_rival
from tests.simulation.runs import simulated

FLEET = load_fleet("pd-10", FleetOptions(shards=2))


def test_answers_wait_for_the_transfer_and_are_decoded_elsewhere() -> None:
    world = simulated(FLEET, product_rival("kvcompass"), count=200, rate_per_s=15)
    records = world.records
    assert records.failed == 0
    assert sum(host.load().generated_tokens for host in world.hosts) == 0
    decoded = [host.load().generated_tokens for host in world.decoders.hosts]
    assert sum(decoded) == records.column("answer_tokens").sum()
    place = np.array(world.regions)[records.column("worker")]
    for decoder, tokens in zip(FLEET.decoders, decoded, strict=True):
        assert tokens == records.column("answer_tokens")[place == decoder.region].sum()
    way_us = np.array([[round(1e3 * ms) for ms in row] for row in FLEET.plan.wan_ms])
    in_fleet_us = records.column("first_token_us") - records.column("submitted_us")
    at_least_us = TRANSFER_US_PER_TOKEN * records.column("prompt_tokens") - 1
    assert (in_fleet_us >= at_least_us + way_us[place, records.column("region")]).all()
    assert records.column("cached_tokens").sum() > 0
