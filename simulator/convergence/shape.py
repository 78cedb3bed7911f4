"""The small fleets that runs are made of, drawn from a seed."""

from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Final

from kvcompass.keys import namespace
from kvcompass.levels import registered_lengths
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
from kvcompass.plan.places import places_given
from kvcompass.roles.desk_bounds import DeskBounds
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.upstream_choice import Bootstrap, Upstream
from simulator.convergence.engine import BLOCK, Block, forest
from simulator.streams import random_stream

JITTER: Final = 0.05
"""Standard deviation of a link's delay, as a share of it, when nothing is wrong."""

_SHARDS: Final = 2
_TOGETHER: Final = 3
"""Edges in one region, at times: one more than a stream from edge to edge takes."""
_CONTEXT: Final = 208
"""Tokens: prompts have at most 12 blocks, eight of them at registered lengths."""
_MODEL: Final = ModelIdentity("m", "builtin:kvcompass-bpe", "builtin:kvcompass-chat", BLOCK, _CONTEXT)
_LENGTHS: Final = LengthRule(quantum=BLOCK)
_RINGS: Final = (0, 6, 10_000, 10_000, 10_000)
"""Batches that an engine may keep for a replay; 0: it has no replay socket."""


@dataclass(frozen=True)
class Shape:
    """A fleet and what of its settings a run varies."""

    plan: Plan
    next_plan: Plan | None
    """The version that the fleet goes over to in the middle of the run."""
    heir: Worker | None
    """Who is given the place of the worker that this version has no more, by a later one."""
    bounds: UnitBounds
    chunk_keys: int
    """Keys in a message of a full report."""
    ring_batches: tuple[int, ...]
    """By worker: batches that its engine keeps for a replay."""
    bootstrap: Bootstrap
    upstream: Upstream
    """Of all edges: whom they learn from."""
    save_us: int
    """Period at which units write their own snapshots; 0: they keep none."""
    lossy: bool
    """Messages of streams are lost, repeated and reordered too."""

    @property
    def relay_bounds(self) -> DeskBounds:
        """Of edges that others follow: as small as a unit's."""
        bounds = self.bounds
        return DeskBounds(
            log_groups=bounds.log_groups,
            message_groups=bounds.message_groups,
            chunk_bytes=bounds.chunk_bytes,
            watermark_period_us=bounds.watermark_period_us,
        )

    @cached_property
    def layout(self) -> dict[str, str]:
        """What handshakes compare."""
        return layout_fields(self.plan)

    @property
    def plans_change(self) -> bool:
        """The fleet goes over to another version."""
        return self.next_plan is not None

    @property
    def last_plan(self) -> Plan:
        """What the fleet goes by at the end, but for the heir and the version's number."""
        return self.next_plan or self.plan

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Of all versions: those that are new come last, the heir after them."""
        old = {worker.id for worker in self.plan.workers}
        new = tuple(w for w in self.last_plan.workers if w.id not in old)
        return self.plan.workers + new + (() if self.heir is None else (self.heir,))

    @property
    def chains(self) -> tuple[tuple[Block, ...], ...]:
        """All prompts there are."""
        both = {int(c) for plan in (self.plan, self.last_plan) for c in registered_lengths(plan)}
        lengths = tuple(sorted(both))
        return forest(namespace(self.plan.model, self.plan.sharing_groups[0].salt), lengths)


def draw_shape(seed: int) -> Shape:
    """Two or three regions, three to six workers in one table or more, small bounds."""
    stream = random_stream(seed, "convergence shape")
    plan = _plan(stream, random_stream(seed, "convergence edges"))
    bounds = UnitBounds(
        log_groups=stream.choice((40, 150, 65_536)),
        message_groups=stream.choice((8, 256)),
        chunk_bytes=stream.choice((512, 2_048, 1 << 18)),
    )
    rings = tuple(stream.choice(_RINGS) for _ in range(len(plan.workers) + 1))
    next_plan = _changed(plan, random_stream(seed, "convergence plan"))
    heir = None if next_plan is None else _heir(plan, next_plan)
    if heir is not None:
        rings += (random_stream(seed, "convergence heir").choice(_RINGS),)
    return Shape(
        plan,
        next_plan,
        heir,
        bounds,
        stream.choice((7, 32_768)),
        rings,
        bootstrap=stream.choice(("units", "peer")),
        upstream=stream.choice(("units", "edge")),
        save_us=stream.choice((0, 0, 700_000, 3_000_000)),
        lossy=stream.random() < 0.5,
    )


def _changed(plan: Plan, stream: Random) -> Plan | None:
    """A version with a worker more, one less, other lengths or a shorter lease; none in two runs of three."""
    if stream.random() < 0.67:
        return None
    workers = list(plan.workers)
    if stream.random() < 0.5:
        del workers[stream.randrange(1, len(workers))]
    if stream.random() < 0.7:
        table = stream.choice((0, plan.tables))
        slot = sum(worker.table == table for worker in plan.workers)
        region = stream.choice(plan.regions)
        workers.append(Worker("new", region, "http://new:1", "tcp://new:2", table, slot, 0.2, 0.02))
    lengths = replace(plan.lengths, stretch=stream.choice((0.75, 1.5, 0.3)))
    routing = replace(plan.routing, lease_ms=stream.choice((900, 3_000)))
    given = places_given(replace(plan, workers=(*plan.workers, *workers)))
    index = replace(plan.index, slots_given=tuple(given.get(table, 0) for table in range(max(given) + 1)))
    return replace(
        plan, plan_version=2, workers=tuple(workers), lengths=lengths, routing=routing, index=index
    )


def _heir(plan: Plan, next_plan: Plan) -> Worker | None:
    """For the place of the worker that the next version has no more, if there is one: as `assign --reuse`."""
    stay = {worker.id for worker in next_plan.workers}
    left = next((worker for worker in plan.workers if worker.id not in stay), None)
    return left and replace(left, id="heir", url="http://heir:1", events="tcp://heir:2")


def _plan(stream: Random, edges_stream: Random) -> Plan:
    regions = tuple("abc"[: stream.choice((2, 3))])
    far = {(a, b): stream.uniform(5.0, 150.0) for a in range(len(regions)) for b in range(a)}
    by_region = stream.random() < 0.4
    slots = [0] * len(regions)
    workers = []
    for number in range(stream.randint(3, 6)):
        region = number % len(regions)
        table = region if by_region else 0
        name = f"{regions[region]}-{number}"
        workers.append(
            Worker(
                name, regions[region], f"http://{name}:1", f"tcp://{name}:2", table, slots[table], 0.2, 0.02
            )
        )
        slots[table] += 1
    homes = [regions[stream.randrange(len(regions))] for _ in range(_SHARDS)]
    edges = [regions[number // 2 % len(regions)] for number in range(stream.choice((2, 3, 4)))]
    if edges_stream.random() < 0.3:
        edges = [regions[0]] * _TOGETHER
    return Plan(
        fleet="convergence",
        plan_version=1,
        model=_MODEL,
        lengths=_LENGTHS,
        index=IndexRule(expected_entries=stream.choice((4, 16, 64)), worker_entries_max=10_000),
        routing=RoutingRule(),
        regions=regions,
        wan_ms=tuple(
            tuple(0.25 if a == b else far[max(a, b), min(a, b)] for b in range(len(regions)))
            for a in range(len(regions))
        ),
        edges=tuple(
            Edge(f"edge-{number}", region, f"e{number}:1", f"e{number}:2", f"e{number}:3")
            for number, region in enumerate(edges)
        ),
        units=tuple(
            MaintenanceUnit(f"unit-{shard}", shard, home, f"u{shard}:1") for shard, home in enumerate(homes)
        ),
        workers=tuple(workers),
        sharing_groups=(SharingGroup("default"),),
    )
