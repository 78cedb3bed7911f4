"""A fleet whose engines send no events, on the virtual clock: edges reuse what they have sent, and say so."""

from dataclasses import replace

import numpy as np

from simulator.fleets import FleetOptions, load_fleet
from simulator.product import product_rival
from simulator.product.router import ProductRouter
from simulator.world import World
from tests.simulation.runs import simulated

FLEET = load_fleet("testbed-11", FleetOptions(shards=2))


def run(ttl_ms: int) -> World:
    """300 prompts of 12 families, one every 25 ms."""
    plan = replace(
        FLEET.plan,
        workers=tuple(replace(worker, holdings="predicted") for worker in FLEET.plan.workers),
        routing=replace(FLEET.plan.routing, predicted_ttl_ms=ttl_ms),
    )
    return simulated(replace(FLEET, plan=plan), product_rival("kvcompass"), count=300, rate_per_s=40)


def reuse(world: World) -> float:
    return float(world.records.column("cached_tokens").sum() / world.records.column("prompt_tokens").sum())


def test_predictions_bring_requests_back_and_claim_nothing() -> None:
    kept, forgotten = run(60_000), run(1)
    router = kept.router
    assert isinstance(router, ProductRouter)
    assert not any(len(node.agent.holdings) for node in router.agents), "nothing is registered"
    assert not kept.records.column("claimed_tokens").any()
    assert (
        sum(
            edge.role.expected.predicted_keys(worker)
            for edge in router.edges
            for worker in range(len(FLEET.plan.workers))
        )
        > 0
    )
    assert reuse(kept) > reuse(forgotten)
    assert np.array_equal(run(60_000).records.column("worker"), kept.records.column("worker"))
