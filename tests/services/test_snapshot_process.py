"""A unit's process ends and begins again: what it had is served at once; a bad file is refused aloud."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvcompass.plan.dump import dump_plan
from kvcompass.plan.layout import layout_fields
from services.maintenance.__main__ import start
from services.maintenance.settings import MaintenanceSettings, SnapshotSettings, snapshot_path
from services.runtime.lifecycle import Lifecycle
from services.runtime.settings import SettingsError
from tests.models.ports import free_address
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import FollowerState, compile_kernels, connected, following, until

PLAN = replication_plan(lease_ms=60_000)
LAYOUT = layout_fields(PLAN)
HELD = {5: 1, 6: 2}


class UnitProcess:
    """`start` in this process; its ports and file stay the same from start to start."""

    def __init__(self, folder: Path) -> None:
        self.listen, self.ops = free_address(), free_address()
        self.file = folder / "kept" / "unit-0.snapshot"
        self.refused = folder / "kept" / "unit-0.snapshot.refused"
        self.settings = folder / "unit.toml"
        (folder / "kept").mkdir()
        (folder / "plan.toml").write_text(dump_plan(PLAN), "utf-8")
        self.settings.write_text(
            f'plan = "plan.toml"\nid = "unit-0"\nlisten = "{self.listen}"\nops_address = "{self.ops}"\n'
            '[snapshot]\npath = "kept/{id}.snapshot"\nperiod_s = 3600.0\n',
            "utf-8",
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["UnitProcess"]:
        compile_kernels()
        lifecycle = Lifecycle()
        serving = asyncio.create_task(start(self.settings, lifecycle))
        try:
            async with asyncio.timeout(60):
                while (await self.health())["state"] in ("", "compiling", "restoring"):
                    assert not serving.done(), serving
                    await asyncio.sleep(0.02)
            yield self
        finally:
            lifecycle.stop()
            async with asyncio.timeout(30):
                await serving
                await lifecycle.close()

    async def health(self) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=f"http://{self.ops}", timeout=5) as operator:
            try:
                return dict((await operator.get("/health")).json())
            except httpx.TransportError:
                return {"state": ""}

    async def outcomes(self) -> set[str]:
        async with httpx.AsyncClient(base_url=f"http://{self.ops}", timeout=5) as operator:
            text = (await operator.get("/metrics")).text
        return {
            sample.labels["outcome"]
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "kvcompass_unit_snapshot_restores_total" and sample.value
        }


async def refill(unit: UnitProcess) -> None:
    for worker in WORKERS:
        async with connected(TwinAgent(worker, LAYOUT, holdings=dict(HELD)), unit.listen):
            pass
    async with asyncio.timeout(10):
        while (await unit.health())["state"] != "serving":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_unit_that_drains_goes_on_where_it_was(tmp_path):
    unit = UnitProcess(tmp_path)
    async with unit.running():
        assert await unit.outcomes() == {"missing"}
        assert (await unit.health())["details"]["snapshot"]["bytes"] == 0
        await refill(unit)
        before = (await unit.health())["details"]
        assert not unit.file.exists(), "the period is an hour"
    assert unit.file.stat().st_mode & 0o777 == 0o600
    async with unit.running(), following(PLAN, unit.listen) as edge:
        assert await unit.outcomes() == {"restored"}
        health = await unit.health()
        assert health["state"] == "correcting"
        assert health["details"]["holdings"] == before["holdings"]
        assert health["details"]["live_workers"] == list(WORKERS)
        assert health["details"]["epoch"] != before["epoch"]
        await until(lambda: edge.state is FollowerState.EXACT)
        assert [edge.tier(key) for key in HELD] == list(HELD.values())
        async with connected(TwinAgent("a-0", LAYOUT, holdings=dict(HELD)), unit.listen) as agent:
            assert not agent.answers[0].full_report_wanted
        async with connected(TwinAgent("a-1", LAYOUT, holdings={9: 1}), unit.listen) as other:
            assert other.answers[0].full_report_wanted
            await until(lambda: edge.tier(9, slot=1) == 1 and edge.tier(5, slot=1) == 0)


@pytest.mark.parametrize(
    ("damage", "outcome"),
    [
        (lambda data: data[:-1], "truncated"),
        (lambda data: data[:70] + b"\xff" + data[71:], "corrupt"),
        (lambda _data: b"something else altogether", "foreign"),
        (lambda data: data.replace(b'"shard":0', b'"shard":1'), "corrupt"),
    ],
)
async def test_a_bad_file_is_refused_aloud_and_kept(tmp_path, capsys, damage, outcome):
    unit = UnitProcess(tmp_path)
    async with unit.running():
        await refill(unit)
    damaged = damage(unit.file.read_bytes())
    unit.file.write_bytes(damaged)
    capsys.readouterr()
    async with unit.running():
        assert await unit.outcomes() == {outcome}
        assert (await unit.health())["state"] == "refilling"
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line[:1] == "{"]
        (refusal,) = (line for line in lines if line["level"] == "error")
        assert "REFUSED" in refusal["event"]
        assert refusal["outcome"] == outcome
        assert len(refusal["reason"]) > 40
        assert refusal["kept_as"] == str(unit.refused)
        assert unit.refused.read_bytes() == damaged
        assert not unit.file.exists()
        await refill(unit)
    assert unit.refused.read_bytes() == damaged
    async with unit.running():
        assert await unit.outcomes() == {"restored"}


async def test_a_file_that_cannot_be_read_is_put_aside_too(tmp_path):
    unit = UnitProcess(tmp_path)
    unit.file.symlink_to(unit.file)
    async with unit.running():
        assert await unit.outcomes() == {"unreadable"}
        assert not unit.file.is_symlink()
        assert unit.refused.is_symlink()
        await refill(unit)
    async with unit.running():
        assert await unit.outcomes() == {"restored"}


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"path": "no-such-folder/x"}, "snapshot.path"),
        ({"path": "."}, "snapshot.path"),
        ({"path": "a\0b"}, "snapshot.path"),
        ({"path": "a" * 300}, "snapshot.path"),
        ({"path": ""}, "snapshot.path"),
        ({"path": "x", "period_s": 0.0}, "snapshot.period_s"),
        ({"path": "x", "period_s": float("inf")}, "snapshot.period_s"),
        ({"path": "x", "drain_s": float("nan")}, "snapshot.drain_s"),
    ],
)
def test_faulty_settings_are_refused_by_name(tmp_path, section, field):
    settings = MaintenanceSettings(plan="p", id="u", snapshot=SnapshotSettings(**section))
    with pytest.raises(SettingsError) as caught:
        snapshot_path(settings, tmp_path / "unit.toml")
    assert caught.value.field == field


def test_a_folder_that_may_not_be_written_to_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    settings = MaintenanceSettings(plan="p", id="u", snapshot=SnapshotSettings(path="x"))
    with pytest.raises(SettingsError, match="cannot be written to"):
        snapshot_path(settings, tmp_path / "unit.toml")


def test_units_that_share_settings_have_a_file_each(tmp_path):
    settings = MaintenanceSettings(plan="p", id="u-7", snapshot=SnapshotSettings(path="kept-{id}"))
    assert snapshot_path(settings, tmp_path / "unit.toml") == tmp_path / "kept-u-7"
    assert snapshot_path(MaintenanceSettings(plan="p", id="u"), tmp_path / "unit.toml") is None
