"""The fleet that is broken: the lab's, with a second edge in one region and tables that are not empty."""

import dataclasses
import tomllib
from typing import Final

from kvcompass.plan.dump import dump_plan
from kvcompass.plan.model import Plan, SharingGroup, Worker
from lab.blueprint import Blueprint, Stage
from lab.faults.truth import Roster
from lab.ports import LoopbackPorts
from lab.process import ProcessSpec
from lab.three_regions import LabOptions, three_regions
from lab.toml import Value, dump_toml

FILLER: Final = "filler"
SECOND_EDGE_REGION: Final = "us"
FILLED_GROUP: Final = "filled"
"""Of the filler's workers: no request belongs to it."""
_FILLER_REGION: Final = "eu"

LAB: Final = LabOptions(
    second_edges=(SECOND_EDGE_REGION,),
    second_edge_settings={"bootstrap": "peer", "upstream": "edge"},
    cache_tokens=16_384,
    edge_settings={"timeouts": {}},
    unit_settings={"fault_switches": True},
)
"""Edges drain as long as in production: what is in progress is not cut short for a quick end. Caches hold
half of what users ask for, so that keys come and go all the time. The second edge learns from the first."""


def fault_fleet(ports: LoopbackPorts, *, keys: int, keys_max: int) -> Blueprint:
    """The lab and the filler, which holds `keys` in all tables, and at most `keys_max`."""
    lab = three_regions(LAB, ports)
    plan = _filled(lab.plan, keys_max, ports)
    ops = ports.address()
    filler = _filler(lab, plan, ops, keys)
    first, *rest, last = lab.stages
    return dataclasses.replace(
        lab,
        plan=plan,
        plan_text=dump_plan(plan),
        stages=(first, *rest, Stage(last.name, (*last.processes, filler))),
        ops_addresses={**lab.ops_addresses, FILLER: ops},
    )


def roster_of(blueprint: Blueprint) -> Roster:
    """Who is who in a fleet of this kind. Agents may share a process or not."""
    plan, names = blueprint.plan, blueprint.ops_addresses
    agents = {}
    for worker in plan.workers:
        own = f"agent-{worker.id.removeprefix('worker-')}"
        shared = FILLER if is_filled(worker) else f"agent-{worker.region}"
        agents[worker.id] = own if own in names else shared
    return Roster(
        edges=tuple(edge.id for edge in plan.edges),
        units={unit.id: unit.shard for unit in plan.units},
        agents=agents,
        engines=tuple(worker.id for worker in plan.workers if not is_filled(worker)),
    )


def is_filled(worker: Worker) -> bool:
    """Whether the filler reports it."""
    return worker.sharing_group == FILLED_GROUP


def _filled(plan: Plan, keys_max: int, ports: LoopbackPorts) -> Plan:
    """The plan with one more worker a region, so that every table fills."""
    more = tuple(
        Worker(
            id=f"filled-{region}",
            region=region,
            url=f"http://{ports.address()}",
            events=f"tcp://{ports.address()}",
            table=table,
            slot=1 + max(worker.slot for worker in plan.workers if worker.table == table),
            prefill_ms_per_token=1.0,
            reload_ms_per_token=1.0,
            sharing_group=FILLED_GROUP,
        )
        for table, region in enumerate(plan.regions)
    )
    return dataclasses.replace(
        plan,
        index=dataclasses.replace(plan.index, worker_entries_max=keys_max),
        workers=plan.workers + more,
        sharing_groups=(*plan.sharing_groups, SharingGroup(FILLED_GROUP, salt=FILLED_GROUP)),
    )


def _filler(lab: Blueprint, plan: Plan, ops: str, keys: int) -> ProcessSpec:
    neighbour = next(
        process
        for stage in lab.stages
        for process in stage.processes
        if process.name == f"agent-{_FILLER_REGION}"
    )
    settings: dict[str, Value] = {
        "plan": "plan.toml",
        "workers": [worker.id for worker in plan.workers if is_filled(worker)],
        "keys": keys,
        "ops_address": ops,
        "connect_via": tomllib.loads(neighbour.settings)["connect_via"],
    }
    return ProcessSpec(FILLER, "lab.faults.filler", dump_toml(settings), ops)
