"""Units that write their own snapshot, and units that begin with one."""

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from kvcompass.index import ShardTables, index_shape
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    FullReport,
    Handshake,
    Refusal,
    ReportRequest,
    SubscribeRequest,
    Welcome,
)
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_snapshot import restore_tables, snapshot_of
from kvcompass.roles.worker_source import AgentSession
from tests.models.replication_agent import TwinAgent

Holdings = Mapping[str, Mapping[int, int]]
"""By worker, tiers by key."""


def real_tables(plan: Plan, shard: int = 0) -> ShardTables:
    return ShardTables(index_shape(plan), shard, random_seed=7)


def new_unit(plan: Plan, tables: ShardWriter | None = None, *, epoch: int = 10) -> MaintenanceUnit:
    tables = tables or real_tables(plan)
    return MaintenanceUnit(plan, "unit-0", epoch=epoch, layout=layout_fields(plan), tables=tables, now_us=0)


def agent_of(plan: Plan, worker: str, held: Mapping[int, int]) -> TwinAgent:
    return TwinAgent(worker, layout_fields(plan), plan.plan_version, holdings=dict(held))


def join(unit: MaintenanceUnit, agent: TwinAgent, now_us: int = 0) -> tuple[AgentSession, Welcome]:
    """Connects, reports if asked to."""
    opened = unit.agent_connected(agent.hello(), now_us)
    assert not isinstance(opened, Refusal), opened
    session, welcome = opened
    if welcome.full_report_wanted:
        report(unit, session, agent, now_us)
    return session, welcome


def report(unit: MaintenanceUnit, session: AgentSession, agent: TwinAgent, now_us: int = 0) -> None:
    for chunk in agent.full_report():
        assert isinstance(chunk, FullReport)
        answers = unit.on_agent_message(session, chunk, now_us)
        assert not any(isinstance(answer, Refusal | ReportRequest) for answer in answers), answers
        finish(unit, session, now_us)


def finish(unit: MaintenanceUnit, session: AgentSession, now_us: int = 0) -> None:
    while unit.work(session, now_us):
        pass


def settled_unit(plan: Plan, holdings: Holdings, tables: ShardWriter | None = None) -> MaintenanceUnit:
    """A unit to which every worker has said what it holds."""
    unit = new_unit(plan, tables)
    for worker in plan.workers:
        join(unit, agent_of(plan, worker.id, holdings.get(worker.id, {})))
    assert unit.settled
    return unit


def written(unit: MaintenanceUnit) -> bytes:
    data = snapshot_of(unit)
    assert data is not None
    return data


def restored_unit(
    data: bytes,
    plan: Plan,
    unit_id: str,
    *,
    epoch: int,
    layout: Mapping[str, str],
    tables: ShardWriter,
    now_us: int,
    bounds: UnitBounds | None = None,
) -> MaintenanceUnit:
    """A unit that begins with a snapshot, in the steps of a process that starts."""
    restored = restore_tables(data, plan, unit_id, layout=layout, tables=tables)
    return MaintenanceUnit(
        plan,
        unit_id,
        epoch=restored.epoch_after(epoch),
        layout=layout,
        tables=tables,
        now_us=now_us,
        bounds=bounds,
        restored=restored,
    )


def restored(
    data: bytes,
    plan: Plan,
    *,
    epoch: int = 20,
    now_us: int = 0,
    tables: Callable[[Plan], ShardWriter] = real_tables,
) -> MaintenanceUnit:
    return restored_unit(
        data,
        plan,
        "unit-0",
        epoch=epoch,
        layout=layout_fields(plan),
        tables=tables(plan),
        now_us=now_us,
    )


def held(unit: MaintenanceUnit) -> dict[str, dict[int, int]]:
    """What the unit's tables have of each worker."""
    found = {}
    for worker in unit.held():
        keys, tiers = unit.holdings(worker)
        found[worker] = dict(zip(keys.tolist(), tiers.tolist(), strict=True))
    return found


_subscribers = itertools.count()


def subscribe(
    unit: MaintenanceUnit, epoch: int, applied: int, now_us: int = 0, *, loaded: bool = False
) -> Subscription:
    """Somebody else each time."""
    handshake = Handshake(f"edge-{next(_subscribers)}", 5, PROTOCOL_VERSION, 1, unit_layout(unit))
    opened = unit.subscribe(SubscribeRequest(handshake, epoch, applied, loaded=loaded), now_us)
    assert isinstance(opened, Subscription), opened
    return opened


def unit_layout(unit: MaintenanceUnit) -> dict[str, str]:
    return dict(unit._agents._layout)


def random_holdings(plan: Plan, keys: int, seed: int) -> dict[str, dict[int, int]]:
    """Each worker holds some of so many keys of the whole key space."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 1 << 63, keys, np.uint64)
    found = {}
    for worker in plan.workers:
        mine = pool[rng.random(keys) < 0.6]
        found[worker.id] = dict(zip(mine.tolist(), rng.integers(1, 3, mine.size).tolist(), strict=True))
    return found
