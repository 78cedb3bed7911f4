"""At rest each view answers, for every key any worker holds, exactly the tiers (invariant 3)."""

import itertools

import numpy as np
import pytest

from kvcompass.wan import Link
from simulator.fleet import Fleet
from simulator.fleets import FleetOptions, load_fleet
from simulator.product import product_rival
from simulator.product.router import ProductRouter
from simulator.world import World
from tests.simulation.runs import FewFamilies

S = 1_000_000
FLEET = load_fleet("testbed-14", FleetOptions(shards=2))


def _world(fleet: Fleet, faithful: bool, **links: object) -> World:
    source = FewFamilies(fleet, count=300, rate_per_s=60, seed=2, families=40, shared=1_500)
    return World(fleet, source, product_rival("kvcompass", faithful=faithful), seed=2, **links)  # type: ignore[arg-type]


def assert_views_tell_the_truth(world: World) -> None:
    """Every edge's view against what every agent holds, for all keys that any of them holds."""
    router = world.router
    assert isinstance(router, ProductRouter)
    plan = world.fleet.plan
    held = [
        {
            int(key): int(tier)
            for shard in range(plan.shards)
            for key, tier in zip(*node.agent.holdings.report(shard), strict=True)
        }
        for node in router.agents
    ]
    keys = np.array(sorted({key for worker in held for key in worker}), np.uint64)
    assert len(keys) > 100
    for edge in router.edges:
        edge.catch_up(world.now_us)
        values = edge.view.lookup(keys)
        for worker, mine in zip(plan.workers, held, strict=True):
            fields = (values[:, worker.table] >> np.uint64(2 * worker.slot)) & np.uint64(3)
            assert fields.tolist() == [mine.get(int(key), 0) for key in keys]
        for feed in edge.feeds:
            assert feed.follower.applied_sequence == feed.unit.unit.sequence
            assert edge.view.digest(feed.follower.shard) == feed.unit.tables.digest()


@pytest.mark.parametrize("faithful", [False, True])
def test_at_rest_every_view_is_what_workers_hold(faithful: bool) -> None:
    world = _world(FLEET, faithful)
    world.run()
    world.drain(world.now_us + 2 * S)
    assert_views_tell_the_truth(world)


@pytest.mark.parametrize(
    "fault",
    [
        {"jitter_ms": 20.0},
        {"loss": 0.3},
        {"jitter_ms": 30.0, "loss": 0.1, "rate": 20.0},
    ],
    ids=str,
)
def test_what_bad_links_did_is_mended(fault: dict[str, float]) -> None:
    world = _world(FLEET, True, link_of=lambda a, b: Link(FLEET.plan.wan_ms[a][b], **fault if a != b else {}))
    world.run()
    for a, b in itertools.permutations(range(FLEET.regions), 2):
        world.network.set_link(a, b, Link(FLEET.plan.wan_ms[a][b]))
    # What was lost many times in a row is still under way, and a lease may have ended meanwhile.
    world.drain(world.now_us + 30 * S)
    assert_views_tell_the_truth(world)


def test_a_healed_partition_is_caught_up_with() -> None:
    world = _world(FLEET, True)

    def part(parted: bool) -> None:
        for other in (0, 1):
            way_ms = FLEET.plan.wan_ms[other][2]
            world.network.set_link(other, 2, Link(way_ms, partition=parted))
            world.network.set_link(2, other, Link(way_ms, partition=parted))

    world.clock.at(1 * S, 2, part, True)  # type: ignore[arg-type]
    world.clock.at(4 * S, 2, part, False)  # type: ignore[arg-type]
    world.run()
    world.drain(max(world.now_us, 4 * S) + 10 * S)
    router = world.router
    assert isinstance(router, ProductRouter)
    assert sum(feed.follower.counters.resubscriptions.total() for e in router.edges for feed in e.feeds) > 0
    assert_views_tell_the_truth(world)
