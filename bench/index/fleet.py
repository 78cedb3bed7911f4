"""A whole fleet's view and edge, filled: what a decision is measured on.

Regions lie as in the paper (CloudPing's round trips when KVCOMPASS_DATA is set, distances otherwise), the
ladder is the product's. All workers hold as many prefixes, and some hold a part of the prompts asked about.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.index.tables import full_writer, random_keys
from bench.ladder.network import Network, by_distance, cloudping
from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.index import IndexView, LookupUnit, WorkerMap, index_shape
from kvcompass.keys import namespace, prefix_keys, shard_of
from kvcompass.levels import query_plan
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
from kvcompass.roles.edge import EdgeRole

SHARDS = 4
PROMPT = 4_096
PROMPTS = 512
HOLDERS = 3
"""Workers that hold a part of each prompt asked about."""
NOW_US = 1_000_000
_CLOUDPING = Path("latency/cloudping_p50_1y_2025-05-29.json")


@dataclass(frozen=True, slots=True)
class Fleet:
    """An edge of the first region, and what it may be asked."""

    plan: Plan
    view: IndexView
    unit: LookupUnit
    edge: EdgeRole
    prompts: list[NDArray[np.int32]]
    """int32[4096] each."""
    keys: list[NDArray[np.uint64]]
    """Of each prompt at the rungs within all tokens but the last."""
    space: bytes
    rungs: NDArray[np.int32]


def fleet(regions: int, workers: int, entries: int) -> Fleet:
    """Build one with `entries` entries over all tables, at 85 %. Costs about 2 us an entry."""
    plan = _plan(network(regions), workers, entries)
    rungs = query_plan(plan).rungs
    space = namespace(plan.model, "")
    rng = np.random.default_rng(5)
    prompts = [rng.integers(0, 128_000, PROMPT, dtype=np.int32) for _ in range(PROMPTS)]
    keys = [prefix_keys(space, prompt[:-1], rungs) for prompt in prompts]
    view = IndexView(index_shape(plan))
    _fill(view, plan, entries, keys, rng)
    origin = plan.region_index(plan.edges[0].region)
    unit = LookupUnit(view, query_plan(plan), WorkerMap.of_plan(plan), origin)
    edge = EdgeRole(plan, plan.edges[0].id, unit, epoch=1)
    for i, worker in enumerate(plan.workers):
        edge.fleet.report(i, WorkerLoad(worker.id, WorkerState.READY, float(rng.uniform(0, 200))), NOW_US)
    return Fleet(plan, view, unit, edge, prompts, keys, space, rungs)


def network(regions: int) -> Network:
    """Measured round trips for 8, 16 or 32 regions where there are any, else by distance."""
    data = os.environ.get("KVCOMPASS_DATA")
    if data and regions in (8, 16, 32):
        return cloudping(Path(data) / _CLOUDPING, regions)
    return by_distance(regions)


def _plan(net: Network, workers: int, entries: int) -> Plan:
    each = workers // len(net.regions)
    groups = -(-each // 16)
    tables = groups * len(net.regions)
    expected = max(1, -(-entries // (tables * SHARDS)))
    trips = net.round_trip_ms / 2 + 0.5 * np.eye(len(net.regions))
    return Plan(
        fleet="bench",
        plan_version=1,
        model=ModelIdentity("model", "builtin:kvcompass-bpe", "builtin:kvcompass-chat", 16, 32_768),
        lengths=LengthRule(),
        index=IndexRule(expected_entries=expected),
        routing=RoutingRule(),
        regions=net.regions,
        wan_ms=tuple(tuple(float(ms) for ms in row) for row in trips),
        edges=(Edge("edge-0", net.regions[0], "h:1", "p:1", "g:1"),),
        units=tuple(MaintenanceUnit(f"unit-{i}", i, net.regions[0], f"u:{i}") for i in range(SHARDS)),
        workers=tuple(
            Worker(
                id=f"{region}-{i}",
                region=region,
                url="http://w",
                events="tcp://w",
                table=r * groups + i // 16,
                slot=i % 16,
                prefill_ms_per_token=0.073,
                reload_ms_per_token=0.005,
            )
            for r, region in enumerate(net.regions)
            for i in range(each)
        ),
        sharing_groups=(SharingGroup("default"),),
    )


def _fill(
    view: IndexView, plan: Plan, entries: int, prompts: list[NDArray[np.uint64]], rng: np.random.Generator
) -> None:
    """Write and load shard after shard: a writer takes several times a view's memory."""
    share = entries // len(plan.workers)
    held: list[list[NDArray[np.uint64]]] = [[] for _ in plan.workers]
    for keys in prompts:
        for worker in rng.choice(len(plan.workers), HOLDERS, replace=False):
            held[worker].append(keys[: rng.integers(2, keys.size + 1)])
    for shard in range(SHARDS):
        writer = full_writer(view.shape, shard)
        for w, worker in enumerate(plan.workers):
            asked = np.concatenate([*held[w], np.zeros(0, np.uint64)])
            keys = np.concatenate((random_keys(max(0, share - asked.size), 1_000 + w), asked))
            keys = keys[shard_of(keys, SHARDS) == shard]
            writer.edit(keys, worker.table, worker.slot, np.ones(keys.size, np.uint8))
        view.load_snapshot(shard, writer.snapshot(), 1, writer.digest())
