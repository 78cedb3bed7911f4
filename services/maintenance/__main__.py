"""`kvcompass-maintenance --settings FILE`: the writer of one shard."""

import argparse
import random
import secrets
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from kvcompass.index import ShardTables, index_shape
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import MaintenanceUnit as PlannedUnit
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_snapshot import restore_tables, snapshot_bytes_most
from kvcompass.warm import warm
from services.maintenance.drain import drain
from services.maintenance.health import unit_health
from services.maintenance.metrics import UnitCollector
from services.maintenance.patch_loss import PatchLoss
from services.maintenance.plan_switch import UnitPlanSwitch
from services.maintenance.restore import Start, log_start, start_from_file
from services.maintenance.service import IndexService
from services.maintenance.settings import MaintenanceSettings, check_switches, snapshot_path, unit_bounds
from services.maintenance.snapshot_keeper import SnapshotKeeper
from services.maintenance.snapshot_metrics import SnapshotCollector
from services.runtime.certificates import certificate_ends
from services.runtime.daemon_thread import in_daemon_thread
from services.runtime.disk import LocalDisk
from services.runtime.epoch import new_epoch, now_us
from services.runtime.grpc_transport import serve_grpc
from services.runtime.lifecycle import Lifecycle, run
from services.runtime.logs import configure_logging, get_logger
from services.runtime.ops import OpsServer
from services.runtime.plain_text import check_plain_text, transport_mode
from services.runtime.plan_desk import PlanDesk
from services.runtime.plan_file import load_plan
from services.runtime.plan_signature import check_plan_key
from services.runtime.settings import SettingsError, faults_named, load_settings, resolve_path
from services.runtime.version import VERSION, add_version
from services.wire.rpc import register_index_maintenance


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="kvcompass-maintenance", description=__doc__)
    add_version(parser)
    parser.add_argument(
        "--settings", type=Path, required=True, help="TOML file; fields in services/maintenance/settings.py"
    )
    parser.add_argument("--id", help="which unit of the plan this is; goes before the settings' `id`")
    arguments = parser.parse_args(sys.argv[1:])

    run(lambda lifecycle: start(arguments.settings, lifecycle, unit_id=arguments.id))


async def start(path: Path, lifecycle: Lifecycle, *, unit_id: str | None = None) -> None:
    """Composes the unit from a settings file; serves until the lifecycle stops. Errors: KVCompassError."""
    settings = load_settings(MaintenanceSettings, path, {} if unit_id is None else {"id": unit_id})
    configure_logging("maintenance", settings.id, settings.log_level)
    with faults_named(path):
        bounds = unit_bounds(settings)
        check_switches(settings)
        check_plan_key(settings.plan_key)
        plan_path = resolve_path(path, settings.plan)
        plan = load_plan(plan_path)
        planned = _planned_unit(plan, settings.id)
        listen = settings.listen or planned.address
        check_plain_text(listen, settings.tls, insecure=settings.insecure)
        ends = certificate_ends(settings.tls)
        kept_at = snapshot_path(settings, path)
    unit: MaintenanceUnit | None = None
    keeper: SnapshotKeeper | None = None
    restoring = False
    registry = CollectorRegistry()
    desk = PlanDesk(Component.UNIT, [settings.id], plan, plan_path, key=settings.plan_key)
    loss = PatchLoss(random.Random(settings.random_seed)) if settings.fault_switches else None  # noqa: S311
    ops = OpsServer(
        settings.ops_address,
        lambda: unit_health(
            unit,
            lifecycle.stopping.is_set(),
            now_us(),
            lost_on_purpose=loss.lost if loss else 0,
            restoring=restoring,
            snapshot=keeper.facts() if keeper else None,
        ),
        registry,
        plan=desk,
        certificate_ends=ends,
        switches={"patch_loss": loss.set_share} if loss else None,
    )
    await ops.start()
    try:
        warmed = in_daemon_thread(partial(warm, plan.index.layout, plan.index.value_bits), "warm")
        if not await lifecycle.unless_stopped(warmed, "warm"):
            return
        new_tables = partial(_tables, plan, planned, settings)
        if kept_at is None or settings.snapshot is None:
            unit = _unit(plan, planned, bounds, new_tables())
        else:
            restoring = True
            begun = await _begun(kept_at, plan, planned, new_tables, lifecycle)
            if begun is None:
                return
            unit = _unit(plan, planned, bounds, begun.tables, begun.restored)
            keeper = SnapshotKeeper(
                unit,
                kept_at,
                LocalDisk(),
                begun.outcome,
                period_s=settings.snapshot.period_s,
                size=begun.size,
            )
            registry.register(SnapshotCollector(keeper))
        registry.register(UnitCollector(unit, now_us))
        await _serve(unit, listen, settings, lifecycle, ops, loss, keeper, desk)
    finally:
        await ops.stop()


async def _begun(
    path: Path,
    plan: Plan,
    planned: PlannedUnit,
    new_tables: Callable[[], ShardTables],
    lifecycle: Lifecycle,
) -> Start | None:
    """What the unit starts with; None when the process was stopped meanwhile."""
    begun: list[Start] = []

    def begin() -> None:
        begun.append(
            start_from_file(
                path,
                snapshot_bytes_most(plan),
                new_tables,
                lambda data, tables: restore_tables(
                    data, plan, planned.id, layout=layout_fields(plan), tables=tables
                ),
            )
        )

    if not await lifecycle.unless_stopped(in_daemon_thread(begin, "restore"), "restore"):
        return None
    log_start(begun[0], path)
    return begun[0]


async def _serve(
    unit: MaintenanceUnit,
    listen: str,
    settings: MaintenanceSettings,
    lifecycle: Lifecycle,
    ops: OpsServer,
    loss: PatchLoss | None,
    keeper: SnapshotKeeper | None,
    desk: PlanDesk,
) -> None:
    service = IndexService(
        unit,
        now_us,
        flush_s=settings.bounds.flush_ms / 1e3,
        hello_timeout_s=settings.bounds.hello_timeout_s,
        loss=loss,
    )
    server, port = await serve_grpc(
        lambda server: register_index_maintenance(server, service),
        listen,
        settings.tls,
        insecure=settings.insecure,
    )
    lifecycle.background(service.tick(), "tick")
    if keeper is not None:
        lifecycle.background(keeper.keep(), "snapshot")
    desk.component = UnitPlanSwitch(unit, service.changed)
    get_logger("maintenance").info(
        "unit is up",
        version=VERSION,
        shard=unit.shard,
        port=port,
        ops_port=ops.port,
        epoch=unit.epoch,
        transport=transport_mode(settings),
        fault_switches=settings.fault_switches,
    )
    await lifecycle.stopping.wait()
    snapshot_s = settings.snapshot.drain_s if settings.snapshot is not None else 0.0
    await drain(unit, server, settings.bounds.drain_s, keeper, snapshot_s)


def _tables(plan: Plan, planned: PlannedUnit, settings: MaintenanceSettings) -> ShardTables:
    seed = secrets.randbits(63) if settings.random_seed is None else settings.random_seed
    return ShardTables(index_shape(plan), planned.shard, random_seed=seed)


def _unit(
    plan: Plan,
    planned: PlannedUnit,
    bounds: UnitBounds,
    tables: ShardTables,
    restored: RestoredFrom | None = None,
) -> MaintenanceUnit:
    epoch = new_epoch()
    return MaintenanceUnit(
        plan,
        planned.id,
        epoch=restored.epoch_after(epoch) if restored else epoch,
        layout=layout_fields(plan),
        tables=tables,
        now_us=now_us(),
        bounds=bounds,
        restored=restored,
    )


def _planned_unit(plan: Plan, unit_id: str) -> PlannedUnit:
    for unit in plan.units:
        if unit.id == unit_id:
            return unit
    known = ", ".join(unit.id for unit in plan.units)
    raise SettingsError(f"{unit_id!r} is no unit of the plan; it has {known}", field="id")


if __name__ == "__main__":
    main()
