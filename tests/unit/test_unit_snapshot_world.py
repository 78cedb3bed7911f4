"""Units that restart from their own snapshot, in a world that loses and reorders: no view ever forgets."""

import itertools

import numpy as np
import pytest

from kvcompass.index import IndexView, ShardTables, index_shape
from kvcompass.roles import unit_report
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_snapshot import snapshot_of
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_world import MS, EdgeNode, Faults, World
from tests.models.unit_snapshots import restored_unit

PLAN = replication_plan()
SHAPE = index_shape(PLAN)
PLACES = {worker.id: (worker.table, worker.slot) for worker in PLAN.workers}
WILD = Faults(loss=0.2, duplication=0.2, jitter_us=20 * MS)
BOUND_US = 9 * S
LASTING = 1_000
"""Keys from here on are never withdrawn by the worker that has them."""


class KeepingWorld(World):
    """Its unit writes a snapshot now and then, and begins with the last one when it restarts."""

    saved: bytes | None = None
    restores = 0

    def _new_unit(self) -> MaintenanceUnit:
        if self.saved is None:
            return super()._new_unit()
        self.restores += 1
        return restored_unit(
            self.saved,
            self.plan,
            "unit-0",
            epoch=next(self._epochs),
            layout=self.layout,
            tables=self._tables(),
            now_us=self.now_us,
            bounds=self._bounds,
        )

    def save(self) -> None:
        self.saved = snapshot_of(self.unit) or self.saved


class Memory:
    """What each edge has shown once, of keys that last: it must go on showing it."""

    def __init__(self, world: World) -> None:
        self.held: dict[str, list[int]] = {worker: [] for worker in WORKERS}
        self._world = world
        self._keys = itertools.count(LASTING)
        self._shown: dict[int, set[tuple[str, int]]] = {}
        for edge in world.edges:
            edge.on_change.append(lambda edge=edge: self._look(edge))

    def add(self, worker: str) -> None:
        key = next(self._keys)
        self.held[worker].append(key)
        self._world.edit(worker, {key: 1})

    def shows(self, edge: EdgeNode) -> set[tuple[str, int]]:
        assert isinstance(edge.view, IndexView)
        found = set()
        for worker, (table, slot) in PLACES.items():
            keys = np.array(self.held[worker], np.uint64)
            tiers = edge.view.lookup(keys)[:, table] >> 2 * slot & 3
            found |= {(worker, int(key)) for key in keys[tiers == 1]}
        return found

    def _look(self, edge: EdgeNode) -> None:
        if edge.follower.state(self._world.now_us) is FollowerState.ABSENT:
            return
        shown = self.shows(edge)
        before = self._shown.setdefault(id(edge), set())
        assert before <= shown, f"{before - shown} were forgotten after {self._world.now_us / S} s"
        before |= shown


def world_of(seed: int, faults: Faults) -> KeepingWorld:
    return KeepingWorld(
        seed,
        faults,
        tables=lambda: ShardTables(SHAPE, 0, random_seed=1),
        view=lambda: IndexView(SHAPE),
        lease_ms=10_000,
        bounds=UnitBounds(chunk_bytes=200, log_groups=400),
    )


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_report, "_CHUNK_KEYS", 7)


def run(seed: int, faults: Faults) -> KeepingWorld:
    """Edits, snapshots and restarts; then faults end, and all is equal within the bound."""
    world = world_of(seed, faults)
    memory = Memory(world)
    for moment in range(400):
        memory.add(world.random.choice(WORKERS))
        world.edit_at_random()
        world.run(20 * MS)
        if moment % 60 == 30:
            world.save()
        if moment % 90 == 89:
            world.restart_unit()
    world.faults = Faults()
    world.run(BOUND_US)
    truth = {(worker, key) for worker, keys in memory.held.items() for key in keys}
    for edge in world.edges:
        assert edge.follower.state(world.now_us) is FollowerState.EXACT
        assert edge.follower.digest == world.unit.digest
        assert memory.shows(edge) == truth
    for worker, tiers in world.truth().items():
        keys, found = world.unit.holdings(worker)
        assert dict(zip(keys.tolist(), found.tolist(), strict=True)) == tiers
    assert world.restores >= 2, "it began empty too often to prove anything"
    return world


@pytest.mark.parametrize("seed", range(3))
def test_views_converge_and_forget_nothing_when_units_restart_from_older_snapshots(seed):
    run(seed, WILD)


def test_without_faults_too_and_the_same_seed_is_the_same_run():
    first, second = (run(7, Faults()) for _ in range(2))
    assert first.unit.counters == second.unit.counters
    assert first.unit.digest == second.unit.digest


def test_the_law_would_notice_a_unit_that_serves_an_older_table_to_all(monkeypatch):
    monkeypatch.setattr(RestoredFrom, "may_know_less_than", lambda *_: False)
    with pytest.raises(AssertionError, match="were forgotten"):
        run(7, Faults())


def test_an_unchanged_fleet_needs_no_report_and_a_new_edge_waits_for_nobody():
    world = world_of(1, Faults())
    for _ in range(20):
        world.edit_at_random()
        world.run(20 * MS)
    world.run(1 * S)
    world.save()
    world.restart_unit()
    newcomer = world._new_edge("edge-c", IndexView(SHAPE))
    world.edges.append(newcomer)
    world._subscribe(newcomer)
    world.run(50 * MS)
    assert newcomer.follower.state(world.now_us) is FollowerState.EXACT, "before any agent is back"
    assert world.unit.awaited_workers() == list(WORKERS)
    world.run(2 * S)
    assert world.unit.awaited_workers() == []
    assert world.unit.counters.full_reports == 0
