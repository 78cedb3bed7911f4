"""What a maintenance unit says of itself."""

from collections.abc import Mapping
from dataclasses import asdict

from kvcompass.roles.free_places import VacantPlace
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.worker_source import Registered
from services.maintenance.unit_state import UnitState
from services.runtime.ops import Health


def unit_health(
    unit: MaintenanceUnit | None,
    stopping: bool,
    now_us: int,
    *,
    lost_on_purpose: int = 0,
    restoring: bool = False,
    snapshot: Mapping[str, object] | None = None,
) -> Health:
    """Ready as soon as it listens: agents must reach a refilling unit, or it would never be refilled.

    `unit` is None as long as its kernels are being compiled, then while it is `restoring` its own snapshot.
    `lost_on_purpose`: messages of a drill. `snapshot`: facts of the unit's own, if it keeps one.
    """
    if unit is None and restoring:
        return Health(
            ready=False, state=UnitState.RESTORING, reasons=["the unit's own snapshot is being read"]
        )
    if unit is None:
        return Health(ready=False, state=UnitState.COMPILING, reasons=["kernels are being compiled"])
    if stopping:
        state, reasons = UnitState.DRAINING, ["the unit is stopping"]
    elif not unit.settled and unit.restored is not None:
        awaited = ", ".join(unit.awaited_workers())
        state, reasons = (
            UnitState.CORRECTING,
            [f"edges whose view is newer than the snapshot wait until these have reported: {awaited}"],
        )
    elif not unit.settled:
        awaited = ", ".join(unit.awaited_workers())
        state = UnitState.REFILLING
        reasons = [f"no snapshot is given out until these have reported: {awaited}"]
    else:
        state, reasons = UnitState.SERVING, []
    details = {
        "shard": unit.shard,
        "plan_version": unit.plan_version,
        "epoch": unit.epoch,
        "sequence": unit.sequence,
        "digest": f"{unit.digest:016x}",
        "entries": unit.entries,
        "is_busy": unit.is_busy,
        "holdings": {
            worker: {"keys": keys, "digest": f"{digest:016x}"}
            for worker, (keys, digest) in unit.held().items()
        },
        "workers": {worker: _told(each) for worker, each in unit.registered(now_us).items()},
        "counters": asdict(unit.counters),
        "live_workers": unit.live_workers(),
        "awaited_workers": unit.awaited_workers(),
        "subscriber_lag_groups": unit.subscriber_lags(),
        "vacant_places": [_place(each) for each in unit.vacant_places()],
        "lost_on_purpose": lost_on_purpose,
    }
    if snapshot is not None:
        details["snapshot"] = dict(snapshot)
    return Health(ready=not stopping, state=state, reasons=reasons, details=details)


def _place(place: VacantPlace) -> dict[str, object]:
    return {
        "table": place.table,
        "slot": place.slot,
        "state": place.state.value,
        "held_up_by": list(place.held_up_by),
        "from_plan_version": place.from_version,
    }


def _told(worker: Registered) -> dict[str, object]:
    return {
        "registration": worker.registration.value,
        "agent_epoch": worker.agent_epoch,
        "sequence": worker.sequence,
        "lease_left_ms": None if worker.lease_left_us is None else worker.lease_left_us / 1_000,
    }
