"""One of each service's metric objects, at rest: they are asked for their names, never for values."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kvcompass.index import IndexView, LookupUnit, ShardTables, WorkerMap, index_shape
from kvcompass.levels.query_plan import query_plan
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import (
    Edge,
    IndexRule,
    LengthRule,
    MaintenanceUnit,
    ModelIdentity,
    Plan,
    RoutingRule,
    SharingGroup,
    Worker,
)
from kvcompass.plan.rollout import Component
from kvcompass.roles import maintenance_unit
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_snapshot_bytes import RestoreOutcome
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.wan.link import Link
from lab.netem.metrics import exposition
from lab.netem.report import Direction, Report
from services.edge.gauges import EdgeGauges
from services.edge.metric_series import foresee
from services.edge.metrics import EdgeMetrics
from services.edge.readiness import Readiness
from services.edge.relay_gauges import RelayGauges
from services.maintenance.metrics import UnitCollector
from services.maintenance.snapshot_keeper import SnapshotKeeper
from services.maintenance.snapshot_metrics import SnapshotCollector
from services.runtime.build_metrics import BuildCollector
from services.runtime.certificates import CertificateCollector
from services.runtime.disk import LocalDisk
from services.runtime.http_metrics import HttpCutsCollector
from services.runtime.plan_desk import PlanDesk
from services.runtime.plan_metrics import PlanCollector
from services.worker_agent.metrics import AgentCollector

_PLAN = Plan(
    fleet="specimen",
    plan_version=1,
    model=ModelIdentity(
        id="specimen",
        tokenizer="builtin:kvcompass-bpe",
        chat_template="builtin:kvcompass-chat",
        block_size=64,
        context_length=4_096,
    ),
    lengths=LengthRule(),
    index=IndexRule(expected_entries=64),
    routing=RoutingRule(),
    regions=("here", "there"),
    wan_ms=((0.5, 80.0), (80.0, 0.5)),
    edges=(
        Edge("edge", "here", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"),
        Edge("peer", "there", "127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9"),
    ),
    units=(MaintenanceUnit("unit", 0, "here", "127.0.0.1:4"),),
    workers=(
        Worker(
            id="worker",
            region="here",
            url="http://127.0.0.1:5",
            events="tcp://127.0.0.1:6",
            table=0,
            slot=0,
            prefill_ms_per_token=0.1,
            reload_ms_per_token=0.01,
        ),
    ),
    sharing_groups=(SharingGroup("default"),),
)


def _now_us() -> int:
    return 1


def edge_metrics() -> Iterable[Metric]:
    """What an edge exports."""
    registry = CollectorRegistry()
    foresee(EdgeMetrics(registry), _PLAN, "here")
    view = IndexView(index_shape(_PLAN))
    lookup = LookupUnit(view, query_plan(_PLAN), WorkerMap.of_plan(_PLAN), 0)
    handshake = Handshake("edge", 1, PROTOCOL_VERSION, _PLAN.plan_version, layout_fields(_PLAN))
    followers = (IndexFollower(0, view, handshake),)
    role = EdgeRole(_PLAN, "edge", lookup, epoch=1)
    registry.register(EdgeGauges(role, followers, Readiness(followers, _now_us), lambda: 0, _now_us))
    relay = ViewRelay(
        followers[0], view, edge_id="edge", layout=handshake.layout, plan_version=_PLAN.plan_version
    )
    registry.register(RelayGauges((relay,), (UpstreamChoice(_PLAN, "edge", 0),)))
    _register_common(registry, Component.EDGE)
    return registry.collect()


def unit_metrics() -> Iterable[Metric]:
    """What a maintenance unit exports."""
    registry = CollectorRegistry()
    unit = maintenance_unit.MaintenanceUnit(
        _PLAN,
        "unit",
        epoch=1,
        layout=layout_fields(_PLAN),
        tables=ShardTables(index_shape(_PLAN), 0, random_seed=1),
        now_us=_now_us(),
        bounds=UnitBounds(),
    )
    registry.register(UnitCollector(unit, _now_us))
    keeper = SnapshotKeeper(unit, Path(), LocalDisk(), RestoreOutcome.MISSING, period_s=30.0)
    registry.register(SnapshotCollector(keeper))
    _register_common(registry, Component.UNIT)
    return registry.collect()


def agent_metrics() -> Iterable[Metric]:
    """What a worker agent exports."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(()))
    _register_common(registry, Component.AGENT)
    return registry.collect()


def _register_common(registry: CollectorRegistry, kind: Component) -> None:
    """What the operations listener of every service adds."""
    registry.register(BuildCollector())
    registry.register(CertificateCollector({"cert": 1.0, "ca": 1.0}))
    registry.register(HttpCutsCollector({}))
    registry.register(PlanCollector(PlanDesk(kind, (), _PLAN, Path(), key="")))


def wan_metrics() -> Iterable[Metric]:
    """What a WAN router exports."""
    way = Direction(False, 0, link=Link(1.0), rtt_ms=2.0, packets=0, shaped_drops=0)
    report = Report("here", "tc", "specimen", "specimen", {("here", "there"): way})
    return text_string_to_metric_families(exposition(report))
