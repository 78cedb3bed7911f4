"""Small fleets for tests of fleet, score, routing and the edge role; built without TOML."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.backlog import Backlog
from kvcompass.fleet.load import LOAD_ROW, RegionLoad, WorkerLoad, WorkerState, load_of_row
from kvcompass.index import Matches
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

REGIONS = ("us", "eu", "asia")
WAN_MS = ((0.5, 160.0, 126.0), (160.0, 0.5, 149.0), (126.0, 149.0, 0.5))
MS = 1000
"""Microseconds."""
SECOND = 1_000_000


def make_plan(
    workers_a_region: int = 2,
    *,
    edges_a_region: int = 1,
    groups: tuple[str, ...] = ("default",),
    routing: RoutingRule | None = None,
    rate: float = 0.2,
) -> Plan:
    """Three regions; worker `us-0` is index 0, `eu-0` the first after all of us; groups take turns."""
    return Plan(
        fleet="test",
        plan_version=1,
        model=ModelIdentity("model", "builtin:kvcompass-bpe", "builtin:kvcompass-chat", 64, 16_384),
        lengths=LengthRule(),
        index=IndexRule(),
        routing=routing or RoutingRule(),
        regions=REGIONS,
        wan_ms=WAN_MS,
        edges=tuple(
            Edge(f"edge-{region}-{i}", region, f"h:{i}", f"p:{i}", f"g:{i}")
            for region in REGIONS
            for i in range(edges_a_region)
        ),
        units=(MaintenanceUnit("unit-0", 0, "us", "u:0"),),
        workers=tuple(
            Worker(
                id=f"{region}-{i}",
                region=region,
                url=f"http://{region}-{i}",
                events="tcp://e",
                table=REGIONS.index(region),
                slot=i,
                prefill_ms_per_token=rate,
                reload_ms_per_token=0.01,
                sharing_group=groups[i % len(groups)],
            )
            for region in REGIONS
            for i in range(workers_a_region)
        ),
        sharing_groups=tuple(SharingGroup(group, group) for group in groups),
    )


def load(worker_id: str, queue_ms: float = 0.0, **changes: object) -> WorkerLoad:
    """A ready worker's load."""
    fields: dict[str, object] = {"worker_id": worker_id, "state": WorkerState.READY, "queue_ms": queue_ms}
    return WorkerLoad(**{**fields, **changes})  # type: ignore[arg-type]


def region_load(
    edge_id: str, region: str, epoch: int, sequence: int, loads: Iterable[WorkerLoad]
) -> RegionLoad:
    """The queue vector of some loads."""
    loads = tuple(loads)
    rows = np.array([load[1:] for load in loads], LOAD_ROW)
    return RegionLoad(edge_id, region, epoch, sequence, tuple(load.worker_id for load in loads), rows)


def loads_of(vector: RegionLoad) -> tuple[WorkerLoad, ...]:
    """The loads that a queue vector was made of."""
    return tuple(map(load_of_row, vector.workers, vector.rows.tolist()))


def matched(workers: int, holdings: dict[int, tuple[int, int]] | None = None) -> Matches:
    """`holdings`: worker -> (tokens, tier)."""
    answer = Matches.none(workers)
    for worker, (tokens, tier) in (holdings or {}).items():
        answer.match_tokens[worker] = tokens
        answer.tier[worker] = tier
    return answer


def remaining(backlog: Backlog, now_us: int) -> list[int]:
    """What is left of each worker's own prefills, microseconds."""
    backlog.age(now_us)
    work_us, began_us = backlog.work_us
    return [
        work - max(now_us - began, 0) for work, began in zip(work_us.tolist(), began_us.tolist(), strict=True)
    ]


class FakeLookup:
    """A lookup unit that answers what the test says."""

    def __init__(self, workers: int) -> None:
        self.answer = matched(workers)

    def match(self, keys: NDArray[np.uint64]) -> Matches:
        return self.answer
