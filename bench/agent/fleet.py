"""The least fleet that has an agent: one engine, one unit and one edge on loopback."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvcompass.plan.model import MaintenanceUnit, Plan
from lab.ports import LoopbackPorts
from lab.process import ProcessSpec
from lab.toml import Value, dump_toml
from services.mock_sglang.profiles import PROFILES
from services.runtime.plan_file import load_plan

PLAN: Final = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"
CACHE_TOKENS: Final = 150_000
"""Of the double: full in the first seconds, so that as much is removed as is stored."""


def plan_of(page: int, ports: LoopbackPorts, engine: str, events: str, replay: str) -> Plan:
    """The example plan's first region with one worker, one unit and one edge."""
    plan = load_plan(PLAN)
    edge, worker = plan.edges[0], plan.workers[0]
    addresses = {name: ports.address() for name in ("address", "peer_address", "grpc_address", "ops_address")}
    return replace(
        plan,
        model=replace(plan.model, block_size=page),
        regions=(worker.region,),
        wan_ms=((plan.wan_ms[0][0],),),
        edges=(replace(edge, **addresses),),
        units=(MaintenanceUnit("unit-0", 0, worker.region, ports.address()),),
        workers=(replace(worker, url=f"http://{engine}", events=events, replay=replay, ops_address=""),),
    )


def processes_of(plan: Plan, version: str, loads: str, ops: Sequence[str]) -> tuple[ProcessSpec, ...]:
    """Engine, unit, edge and agent, with the flags of docs/deploy-engines.md.

    Args:
        plan: Of `plan_of`.
        version: Of SGLang, as the double plays it.
        loads: Where it publishes its load, if that version does.
        ops: Operations listeners of the other three.
    """
    worker = plan.workers[0]
    engine = worker.url.removeprefix("http://")
    double: dict[str, Value] = {
        "address": engine,
        "model": plan.model.id,
        "page_size": plan.model.block_size,
        "cache_tokens": CACHE_TOKENS,
        "event_endpoint": worker.events,
        "replay_endpoint": worker.replay,
        "event_profile": version,
        "load_publish_endpoint": loads if PROFILES[version].load_publisher else "",
        "log_level": "warning",
        "timing": {"prefill_ms_per_token": 0.001, "prefill_ms_per_token_squared": 0.0},
    }
    maintenance: dict[str, Value] = {
        "plan": "plan.toml",
        "id": plan.units[0].id,
        "ops_address": ops[0],
    }
    agent: dict[str, Value] = {
        "plan": "plan.toml",
        "workers": [plan.workers[0].id],
        "ops_address": ops[1],
    }
    edge: dict[str, Value] = {
        "plan": "plan.toml",
        "id": plan.edges[0].id,
        "ops_address": ops[2],
        "peer_key": "a key of this benchmark alone, 32 bytes",
        "lab_mode": True,
    }
    return (
        ProcessSpec("engine", "services.mock_sglang", dump_toml(double), engine, "/v1/models"),
        ProcessSpec("unit", "services.maintenance", dump_toml(maintenance), ops[0]),
        ProcessSpec("edge", "services.edge", dump_toml(edge), ops[2]),
        ProcessSpec("agent", "services.worker_agent", dump_toml(agent), ops[1]),
    )
