"""After any loss, repetition, reordering, restart or partition every view tells what live workers hold."""

from typing import Protocol

import numpy as np
import pytest

from kvcompass.index import IndexView, ShardTables, index_shape
from kvcompass.roles import unit_report
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.shard_view import ShardView
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.unit_bounds import UnitBounds
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_table import DictTables, DictView
from tests.models.replication_world import MS, EdgeNode, Faults, World

BOUND_US = 9 * S
"""From the end of all faults to equality: a lost request, a compare period, a watermark."""
KEYS = 40
WILD = Faults(loss=0.25, duplication=0.2, jitter_us=20 * MS)
PLACES = {worker.id: (worker.table, worker.slot) for worker in replication_plan().workers}


class Index(Protocol):
    """What the world runs on: the twins, or the real thing."""

    def tables(self) -> ShardWriter: ...

    def view(self) -> ShardView: ...

    def answers(self, view: ShardView) -> dict[str, dict[int, int]]: ...


class Twins:
    def __init__(self) -> None:
        self.rebuild_every = 0

    def tables(self) -> ShardWriter:
        return DictTables(self.rebuild_every, snapshot_parts=4)

    def view(self) -> ShardView:
        return DictView()

    def answers(self, view: ShardView) -> dict[str, dict[int, int]]:
        assert isinstance(view, DictView)
        found: dict[str, dict[int, int]] = {worker: {} for worker in WORKERS}
        for (key, *place), tier in view.fields.items():
            worker = next(worker for worker in WORKERS if PLACES[worker] == tuple(place))
            found[worker][key] = tier
        return found


class Ludo:
    """Small tables, so that some runs rebuild them."""

    shape = index_shape(replication_plan())

    def tables(self) -> ShardWriter:
        return ShardTables(self.shape, 0, random_seed=1)

    def view(self) -> ShardView:
        return IndexView(self.shape)

    def answers(self, view: ShardView) -> dict[str, dict[int, int]]:
        """Asked for each worker's keys alone: a keyless view may answer anything for others."""
        assert isinstance(view, IndexView)
        values = view.lookup(np.arange(KEYS, dtype=np.uint64))
        return {
            worker: {
                key: tier
                for key in range(KEYS)
                if (tier := int(values[key, table]) >> (2 * slot) & 3) in (1, 2)
            }
            for worker, (table, slot) in PLACES.items()
        }


def equal(index: Index, world: World, edge: EdgeNode) -> bool:
    """Exact for the twins; for the keyless view, for every key that a worker of the table holds."""
    truth, found = world.truth(), index.answers(edge.view)
    if isinstance(index, Twins):
        return found == truth
    held: dict[int, set[int]] = {}
    for worker, tiers in truth.items():
        held.setdefault(PLACES[worker][0], set()).update(tiers)
    return all(
        truth[worker].get(key, 0) == found[worker].get(key, 0)
        for worker in WORKERS
        for key in held.get(PLACES[worker][0], ())
    )


def assert_converged(index: Index, world: World) -> None:
    for edge in world.edges:
        assert edge.follower.state(world.now_us) is FollowerState.EXACT
        assert edge.follower.applied_sequence == world.unit.sequence
        assert equal(index, world, edge)


def new_world(index: Index, seed: int, faults: Faults, **options: int) -> World:
    return World(
        seed,
        faults,
        tables=index.tables,
        view=index.view,
        lease_ms=10_000,
        bounds=UnitBounds(chunk_bytes=200, log_groups=options.get("log_groups", 400)),
    )


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_report, "_CHUNK_KEYS", 7)


@pytest.fixture(params=[Twins, Ludo])
def index(request) -> Index:
    return request.param()


@pytest.mark.parametrize("seed", range(6))
def test_views_converge_after_loss_repetition_and_reordering(index, seed):
    world = new_world(index, seed, WILD)
    world.edit("a-0", {0: 1})
    for _ in range(150):
        world.edit_at_random(KEYS)
        world.run(20 * MS)
    world.faults = Faults()
    world.run(BOUND_US)
    assert_converged(index, world)
    assert world.unit.counters.holes > 0, "the network was not wild enough to prove anything"
    assert sum(sum(edge.follower.counters.resubscriptions.values()) for edge in world.edges) > 0


@pytest.mark.parametrize("seed", range(3))
def test_views_converge_after_everything_restarts_under_loss(index, seed):
    world = new_world(index, seed, WILD, log_groups=30)
    for round_ in range(6):
        for _ in range(25):
            world.edit_at_random(KEYS)
            world.run(20 * MS)
        if round_ % 3 == 0:
            world.restart_unit()
        elif round_ % 3 == 1:
            world.restart_agent("a-1")
        else:
            world.cut(world.edges[0])
            world.at(4 * S, lambda: world.heal(world.edges[0]))
    world.run(4 * S)
    world.faults = Faults()
    world.run(BOUND_US)
    assert_converged(index, world)


def test_a_dead_workers_fields_vanish_everywhere_after_its_lease(index):
    world = new_world(index, 1, Faults())
    for _ in range(30):
        world.edit_at_random(KEYS)
        world.run(20 * MS)
    world.kill_worker("a-1")
    world.run(9 * S)
    assert world.unit.counters.leases_ended == 0
    world.run(2 * S)
    assert world.unit.counters.leases_ended == 1
    assert_converged(index, world)


def test_rebuilds_reach_every_view():
    index = Twins()
    index.rebuild_every = 3
    world = new_world(index, 2, WILD)
    for _ in range(200):
        world.edit_at_random(KEYS)
        world.run(20 * MS)
    world.faults = Faults()
    world.run(BOUND_US)
    assert world.unit.counters.rebuilds > 2
    assert_converged(index, world)


@pytest.mark.parametrize("seed", range(4))
def test_a_key_that_is_held_all_the_while_is_never_missing_from_a_loaded_view(seed):
    index = Twins()
    world = new_world(index, seed, WILD, log_groups=30)
    world.edit("a-0", {0: 1})
    world.faults = Faults()
    world.run(2 * S)
    world.faults = Faults(loss=0.05, duplication=0.05, jitter_us=5 * MS)
    missing = []
    for edge in world.edges:
        assert 0 in index.answers(edge.view)["a-0"]
        edge.on_change.append(
            lambda edge=edge: (
                missing.append(world.now_us) if 0 not in index.answers(edge.view)["a-0"] else None
            )
        )
    for step in range(300):
        world.edit_at_random(KEYS)
        world.run(50 * MS)
        if step % 120 == 50:
            world.restart_unit()
        if step % 120 == 80:
            world.restart_agent("a-0")
    world.faults = Faults()
    world.run(BOUND_US)
    assert world.unit.counters.leases_ended == 0
    assert min(edge.follower.counters.snapshots for edge in world.edges) > 1, "no view was resynced"
    assert missing == []
    assert_converged(index, world)


def test_an_edge_serves_on_while_a_restarted_unit_is_empty_then_switches_at_once(index):
    world = new_world(index, 3, Faults())
    for _ in range(30):
        world.edit_at_random(KEYS)
        world.run(20 * MS)
    edge = world.edges[0]
    assert edge.follower.state(world.now_us) is FollowerState.EXACT
    before, first_epoch = index.answers(edge.view), edge.follower.unit_epoch
    silent = world.agents["a-0"]
    silent.engine_up = silent.agent.vouches = False
    world.restart_unit()
    world.run(4 * S)
    assert not world.unit.settled, "one agent has not come back"
    assert edge.follower.state(world.now_us) is FollowerState.STALE
    assert index.answers(edge.view) == before
    silent.engine_up = silent.agent.vouches = True
    world._connect_agent(silent)
    world.run(4 * S)
    assert edge.follower.unit_epoch != first_epoch
    assert_converged(index, world)


def test_a_partitioned_edge_that_missed_more_than_the_log_keeps_gets_a_snapshot(index):
    world = new_world(index, 4, Faults(), log_groups=20)
    world.run(2 * S)
    cut, other = world.edges
    snapshots = [edge.follower.counters.snapshots for edge in world.edges]
    world.cut(cut)
    for _ in range(60):
        world.edit_at_random(KEYS)
        world.run(100 * MS)
    assert cut.follower.state(world.now_us) is FollowerState.STALE
    world.heal(cut)
    world.run(BOUND_US)
    assert cut.follower.counters.snapshots == snapshots[0] + 1
    assert other.follower.counters.snapshots == snapshots[1]
    assert cut.follower.counters.resubscriptions[ResubscribeReason.SILENCE] >= 1
    assert_converged(index, world)


def test_a_report_that_takes_many_leases_reaches_every_view(index):
    """Thirty-five keys, five chunks of seven, each most of a lease on the way."""
    world = new_world(index, 7, Faults())
    world.edit("a-0", dict.fromkeys(range(35), 1))
    world.run(2 * S)
    world.faults = Faults(keys_per_s=1.0)
    world.restart_unit()
    world.run(20 * S)
    assert not world.unit.settled
    world.run(50 * S)
    assert world.unit.counters.leases_ended == 0
    assert world.unit.counters.full_reports > 0
    assert_converged(index, world)


def test_a_worker_that_changes_faster_than_its_link_is_kept_alive_and_catches_up(index):
    world = new_world(index, 8, Faults(keys_per_s=4.0))
    for tier in range(200):
        world.edit("a-0", dict.fromkeys(range(1, 20), 1 + tier % 2))
        world.run(200 * MS)
    assert world.unit.counters.leases_ended == 0
    world.faults = Faults()
    world.run(30 * S)
    assert_converged(index, world)


def test_the_same_seed_gives_the_same_run():
    def history(seed: int) -> list[object]:
        world = new_world(Twins(), seed, WILD)
        for _ in range(60):
            world.edit_at_random(KEYS)
            world.run(20 * MS)
        followers: list[IndexFollower] = [edge.follower for edge in world.edges]
        return [world.unit.sequence, world.unit.counters, *(follower.counters for follower in followers)]

    assert history(5) == history(5)
    assert history(5) != history(6)
