"""The unit's own snapshot follows the unit, and what fails is counted and leaves the file before."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.unit_snapshot_bytes import RestoreOutcome
from kvcompass.roles.worker_source import Registration
from services.maintenance.drain import drain
from services.maintenance.snapshot_keeper import SnapshotKeeper, WriteFailure
from services.maintenance.snapshot_metrics import SnapshotCollector
from services.runtime.disk import LocalDisk
from services.runtime.epoch import now_us
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_service import ConnectedAgent, Served, connected, served, until
from tests.models.unit_snapshots import held, restored

LEASE_US = 60 * S
PLAN = replication_plan(lease_ms=LEASE_US // 1_000)
LAYOUT = layout_fields(PLAN)


class FullDisk(LocalDisk):
    full = True

    def write(self, handle: int, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(handle, data)


class StuckDisk(LocalDisk):
    """Its first sync takes until it may go on."""

    def __init__(self) -> None:
        self.stuck, self.go_on = threading.Event(), threading.Event()

    def sync(self, handle: int) -> None:
        if not self.stuck.is_set():
            self.stuck.set()
            self.go_on.wait(30)
        super().sync(handle)


@asynccontextmanager
async def settled() -> AsyncIterator[tuple[Served, ConnectedAgent]]:
    async with served(PLAN) as unit:
        for worker in WORKERS[1:]:
            async with connected(TwinAgent(worker, LAYOUT), unit.address):
                pass
        async with connected(TwinAgent("a-0", LAYOUT, holdings={5: 1, 6: 2}), unit.address) as agent:
            await until(lambda: unit.unit.settled)
            yield unit, agent


def keeper_of(unit: Served, path: Path, disk: LocalDisk | None = None) -> SnapshotKeeper:
    return SnapshotKeeper(unit.unit, path, disk or LocalDisk(), RestoreOutcome.MISSING, period_s=0.02)


async def test_the_file_follows_the_unit_and_is_left_alone_while_nothing_changes(tmp_path):
    path = tmp_path / "unit.snapshot"
    async with settled() as (unit, agent):
        keeper = keeper_of(unit, path)
        keeping = asyncio.create_task(keeper.keep())
        await until(lambda: keeper.writes == 1)
        assert held(restored(path.read_bytes(), PLAN))["a-0"] == {5: 1, 6: 2}
        assert keeper.size == path.stat().st_size
        inode = path.stat().st_ino
        for _ in range(3):
            aged = keeper.age_s
            await until(lambda aged=aged: keeper.age_s < aged)  # it is found to be true still
        assert (keeper.writes, path.stat().st_ino) == (1, inode)
        await agent.edit({5: 0, 7: 1})
        await until(lambda: keeper.writes == 2)
        assert held(restored(path.read_bytes(), PLAN))["a-0"] == {6: 2, 7: 1}
        keeping.cancel()


async def test_a_unit_that_is_being_refilled_leaves_its_predecessors_file(tmp_path):
    path = tmp_path / "unit.snapshot"
    path.write_bytes(b"of the one before")
    async with served(PLAN) as unit, connected(TwinAgent("a-0", LAYOUT, holdings={5: 1}), unit.address):
        keeper = keeper_of(unit, path)
        await keeper.write()
        await keeper.write_last(5)
        assert (keeper.writes, path.read_bytes()) == (0, b"of the one before")


async def test_a_full_disk_is_counted_and_the_next_writing_mends_it(tmp_path):
    path = tmp_path / "unit.snapshot"
    path.write_bytes(b"of the one before")
    async with settled() as (unit, _agent):
        disk = FullDisk()
        keeper = keeper_of(unit, path, disk)
        before = keeper.age_s
        await keeper.write()
        assert keeper.failures == {WriteFailure.DISK: 1}
        assert path.read_bytes() == b"of the one before"
        assert keeper.age_s > before
        disk.full = False
        await keeper.write()
        assert keeper.writes == 1
        assert held(restored(path.read_bytes(), PLAN))["a-0"] == {5: 1, 6: 2}


async def test_a_disk_that_hangs_holds_neither_the_unit_nor_the_end_of_the_process(tmp_path):
    async with settled() as (unit, agent):
        disk = StuckDisk()
        keeper = keeper_of(unit, tmp_path / "unit.snapshot", disk)
        writing = asyncio.create_task(keeper.write())
        await until(disk.stuck.is_set)
        await agent.edit({9: 1})
        await agent.acknowledged()
        await keeper.write_last(0.05)
        assert keeper.failures == {WriteFailure.TIMEOUT: 1}
        disk.go_on.set()
        await writing
        assert keeper.writes == 1


async def test_the_end_waits_for_a_writing_under_way_and_writes_what_came_since(tmp_path):
    path = tmp_path / "unit.snapshot"
    async with settled() as (unit, agent):
        disk = StuckDisk()
        keeper = keeper_of(unit, path, disk)
        writing = asyncio.create_task(keeper.write())
        await until(disk.stuck.is_set)
        await agent.edit({9: 1})
        await agent.acknowledged()
        last = asyncio.create_task(keeper.write_last(30))
        await asyncio.wait({last}, timeout=0.3)  # if it did not wait, the older one would come last
        disk.go_on.set()
        await asyncio.gather(writing, last)
        assert (keeper.writes, keeper.failures) == (2, {})
        assert held(restored(path.read_bytes(), PLAN))["a-0"] == {5: 1, 6: 2, 9: 1}


async def test_agents_that_the_end_has_turned_away_are_in_the_last_snapshot_however_long_it_waits(tmp_path):
    path = tmp_path / "unit.snapshot"
    async with settled() as (unit, agent):
        disk = StuckDisk()
        keeper = keeper_of(unit, path, disk)
        writing = asyncio.create_task(keeper.write())
        await until(disk.stuck.is_set)
        await agent.edit({9: 1})
        await agent.acknowledged()
        ending = asyncio.create_task(drain(unit.unit, unit.server, 0.05, keeper, 30))
        await until(lambda: unit.unit.registered(now_us())["a-0"].registration is Registration.SILENT)
        unit.unit.stalled(-LEASE_US)  # all leases are due
        await asyncio.sleep(0.3)  # ticks
        disk.go_on.set()
        await asyncio.gather(writing, ending)
        assert (keeper.writes, keeper.failures) == (2, {})
        assert held(restored(path.read_bytes(), PLAN))["a-0"] == {5: 1, 6: 2, 9: 1}


async def test_the_metrics_have_closed_labels_from_the_start(tmp_path):
    async with settled() as (unit, _agent):
        keeper = keeper_of(unit, tmp_path / "unit.snapshot")
        registry = CollectorRegistry()
        registry.register(SnapshotCollector(keeper))
        for outcome in RestoreOutcome:
            value = registry.get_sample_value(
                "kvcompass_unit_snapshot_restores_total", {"outcome": outcome.value}
            )
            assert value == (outcome is RestoreOutcome.MISSING)
        for reason in WriteFailure:
            assert (
                registry.get_sample_value("kvcompass_unit_snapshot_failures_total", {"reason": reason.value})
                == 0
            )
        await keeper.write()
        assert registry.get_sample_value("kvcompass_unit_snapshot_writes_total") == 1
        assert registry.get_sample_value("kvcompass_unit_snapshot_size_bytes") == keeper.size > 0
        assert registry.get_sample_value("kvcompass_unit_snapshot_write_seconds") == keeper.write_s > 0
        assert registry.get_sample_value("kvcompass_unit_snapshot_age_seconds") >= 0
