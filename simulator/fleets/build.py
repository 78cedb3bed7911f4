"""From a list of sites to a fleet, by way of the product's own plan checks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvcompass.plan import dump_plan, parse_plan
from kvcompass.plan.assign import assign_workers
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
    worker_slots,
)
from kvcompass.plan.sections import UNASSIGNED
from simulator.fleet import DecodeEngine, Fleet
from simulator.fleets.engines import Gpu
from simulator.fleets.options import FleetOptions

CONTEXT_LENGTH: Final = 131_072
"""Llama-3.1's."""
_EXPECTED_ENTRIES: Final = 32_768
"""Of a table: 16 full caches of 1.2 M tokens register about 5,000 prefixes each, over a few shards."""
_QUANTUM: Final = 128


@dataclass(frozen=True, slots=True)
class Site:
    """One region of a fleet."""

    region: str
    workers: int
    decoders: int = 0
    origin_weight: float | None = None
    """Share of the requests that start here, in any unit; None: as many as it has workers."""


def build_fleet(
    name: str,
    sites: Sequence[Site],
    wan_ms: Sequence[Sequence[float]],
    gpu: Gpu,
    options: FleetOptions,
) -> Fleet:
    """Return a fleet of one kind of GPU.

    Raises:
        PlanError: The plan breaks a rule of the product.
    """
    plan = checked(_plan(name, sites, wan_ms, gpu, options))
    config = gpu.config(options.block_size, options)
    weights = [site.workers if site.origin_weight is None else site.origin_weight for site in sites]
    return Fleet(
        name=name,
        plan=plan,
        engines=(config,) * len(plan.workers),
        origin_weights=tuple(weight / sum(weights) for weight in weights),
        decoders=tuple(
            DecodeEngine(region, config) for region, site in enumerate(sites) for _ in range(site.decoders)
        ),
    )


def checked(plan: Plan) -> Plan:
    """Give each worker its place and read the plan back through the product's parser, which checks it."""
    workers, given = assign_workers(
        plan.workers, slots=worker_slots(plan.index.value_bits), given=plan.index.slots_given
    )
    return parse_plan(dump_plan(replace(plan, workers=workers, index=replace(plan.index, slots_given=given))))


def _plan(
    name: str,
    sites: Sequence[Site],
    wan_ms: Sequence[Sequence[float]],
    gpu: Gpu,
    options: FleetOptions,
) -> Plan:
    quantum = -(-_QUANTUM // options.block_size) * options.block_size
    regions = tuple(site.region for site in sites)
    return Plan(
        fleet=name,
        plan_version=1,
        model=ModelIdentity(
            id="meta-llama/Llama-3.1-8B-Instruct",
            tokenizer="builtin:kvcompass-bpe",
            chat_template="builtin:kvcompass-chat",
            block_size=options.block_size,
            context_length=CONTEXT_LENGTH,
        ),
        lengths=LengthRule(policy=options.length_policy, quantum=quantum),
        index=IndexRule(expected_entries=_EXPECTED_ENTRIES),
        routing=RoutingRule(queue_scale_ms=options.queue_scale_ms, wan_charge=options.wan_charge),
        regions=regions,
        wan_ms=tuple(tuple(row) for row in wan_ms),
        edges=tuple(_edge(region) for region in regions),
        units=tuple(
            MaintenanceUnit(f"unit-{shard}", shard, region, f"unit-{shard}.{region}:7000")
            for shard, region in enumerate(regions[: options.shards])
        ),
        workers=tuple(_worker(site, i, gpu, options) for site in sites for i in range(site.workers)),
        sharing_groups=(SharingGroup("default"),),
    )


def _edge(region: str) -> Edge:
    host = f"edge.{region}"
    return Edge(f"edge-{region}", region, f"{host}:8000", f"{host}:8001", f"{host}:8002")


def _worker(site: Site, number: int, gpu: Gpu, options: FleetOptions) -> Worker:
    name = f"{site.region}-{number}"
    batches_cost = options.timing != "linear" and not site.decoders
    return Worker(
        id=name,
        region=site.region,
        url=f"http://{name}:30000",
        events=f"tcp://{name}:5557",
        table=UNASSIGNED,
        slot=UNASSIGNED,
        prefill_ms_per_token=gpu.prefill_ms_per_token,
        reload_ms_per_token=gpu.reload_ms_per_token,
        decode_ms_per_context_token=None if batches_cost else 0.0,
    )
