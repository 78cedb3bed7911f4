"""The unit's process: checked settings, true health, metrics, an orderly end."""

import asyncio
import threading
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kvcompass.plan.dump import dump_plan
from kvcompass.plan.layout import layout_fields
from services.maintenance import __main__ as maintenance
from services.maintenance.__main__ import start
from services.maintenance.metrics import UnitCollector
from services.maintenance.settings import MaintenanceSettings, check_switches, unit_bounds
from services.runtime.epoch import now_us
from services.runtime.lifecycle import Lifecycle
from services.runtime.settings import SettingsError, load_settings
from tests.models.ports import free_address
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import compile_kernels, connected, served


def write(folder: Path, text: str) -> Path:
    (folder / "plan.toml").write_text(dump_plan(replication_plan()), "utf-8")
    path = folder / "unit.toml"
    path.write_text(text, "utf-8")
    return path


async def test_a_unit_serves_agents_and_its_operators_and_ends_when_told(tmp_path):
    listen, ops = free_address(), free_address()
    path = write(tmp_path, f'plan = "plan.toml"\nid = "unit-0"\nlisten = "{listen}"\nops_address = "{ops}"\n')
    compile_kernels()
    lifecycle = Lifecycle()
    serving = asyncio.create_task(start(path, lifecycle))
    async with httpx.AsyncClient(base_url=f"http://{ops}", timeout=5) as operator:

        async def ready() -> dict:  # type: ignore[type-arg]
            return (await operator.get("/ready")).json()

        async with asyncio.timeout(60):
            while True:
                try:
                    refilling = await ready()
                    if refilling["state"] != "compiling":
                        break
                except httpx.TransportError:
                    assert not serving.done(), serving
                    await asyncio.sleep(0.05)
        assert (refilling["ready"], refilling["state"]) == (True, "refilling")
        assert refilling["details"]["awaited_workers"] == list(WORKERS)
        for worker in WORKERS:
            async with connected(TwinAgent(worker, layout_fields(replication_plan())), listen) as agent:
                await agent.edit({1: 1})
                await agent.acknowledged()
        serving_now = await ready()
        assert (serving_now["ready"], serving_now["state"], serving_now["reasons"]) == (True, "serving", [])
        assert serving_now["details"]["live_workers"] == list(WORKERS)
        assert int(serving_now["details"]["digest"], 16) != int(refilling["details"]["digest"], 16)
        assert {
            worker: held["keys"] for worker, held in serving_now["details"]["holdings"].items()
        } == dict.fromkeys(WORKERS, 1)
        metrics = (await operator.get("/metrics")).text
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
        }
        assert samples["kvcompass_maintenance_edited_keys_total"] == 3
        assert samples["kvcompass_maintenance_settled"] == 1
        assert samples["kvcompass_maintenance_entries"] == 2, "one key in each of two tables"
    lifecycle.stop()
    async with asyncio.timeout(10):
        await serving
        await lifecycle.close()


@pytest.mark.parametrize("ending", ["stopped", "failed"])
async def test_a_unit_answers_and_can_be_stopped_while_it_compiles(tmp_path, monkeypatch, ending):
    compiling, let_go = threading.Event(), threading.Event()

    def warm(*_layout: object) -> None:
        compiling.set()
        let_go.wait(60)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(maintenance, "warm", warm)
    ops = free_address()
    path = write(tmp_path, f'plan = "plan.toml"\nid = "unit-0"\nops_address = "{ops}"\n')
    lifecycle = Lifecycle()
    try:
        async with asyncio.timeout(20), httpx.AsyncClient(base_url=f"http://{ops}") as operator:
            serving = asyncio.create_task(start(path, lifecycle))
            while not compiling.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            health = await operator.get("/ready")
            assert (health.status_code, health.json()["state"]) == (503, "compiling")
            if ending == "stopped":
                lifecycle.stop()
                await serving
                await lifecycle.close()
            else:
                let_go.set()
                await serving
                with pytest.raises(RuntimeError, match="no compiler"):
                    await lifecycle.close()
    finally:
        let_go.set()


async def test_every_counter_of_the_unit_is_a_metric():
    async with served(replication_plan()) as unit:
        registry = CollectorRegistry()
        registry.register(UnitCollector(unit.unit, now_us))
        names = {metric.name for metric in registry.collect()}
    for counter in type(unit.unit.counters).__slots__:
        assert f"kvcompass_maintenance_{counter}" in names


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("surprise = 1", "surprise"),
        ("[bounds]\nlog_groups = 0", "bounds.log_groups"),
        ("[bounds]\nflush_ms = -1.0", "bounds.flush_ms"),
        ('[bounds]\nlog_bytes = "many"', "bounds.log_bytes"),
    ],
)
def test_faulty_settings_are_refused_by_name(tmp_path, line, field):
    path = write(tmp_path, f'plan = "plan.toml"\nid = "unit-0"\n{line}\n')
    with pytest.raises(SettingsError) as caught:
        unit_bounds(load_settings(MaintenanceSettings, path))
    assert caught.value.field == field


async def test_a_unit_that_is_not_in_the_plan_is_refused(tmp_path):
    path = write(tmp_path, 'plan = "plan.toml"\nid = "unit-9"\n')
    with pytest.raises(SettingsError) as caught:
        await start(path, Lifecycle())
    assert caught.value.field == "id"


async def test_a_unit_does_not_serve_the_world_in_plain_text_unasked(tmp_path):
    path = write(tmp_path, 'plan = "plan.toml"\nid = "unit-0"\nlisten = "0.0.0.0:0"\n')
    with pytest.raises(SettingsError, match="insecure = true"):
        await start(path, Lifecycle())


def test_switches_that_strangers_could_reach_are_refused():
    within = MaintenanceSettings(plan="p", id="u", fault_switches=True)
    check_switches(within)
    outside = MaintenanceSettings(plan="p", id="u", ops_address="0.0.0.0:9")
    check_switches(outside)
    with pytest.raises(SettingsError, match="loopback") as caught:
        check_switches(msgspec.structs.replace(outside, fault_switches=True))
    assert caught.value.field == "fault_switches"
