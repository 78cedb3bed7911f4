"""How long an edge takes until its view is exact, from a maintenance unit and from a neighbour edge.

python -m bench.edge_warm --entries 1000000 --json out/edge-warm.json          # a minute

Three processes on loopback, the services' own gRPC channels and servers between them: a unit with the entries
in one shard, an edge that follows it, and the edge that is measured, which begins anew each time, by turns
from the one and from the other. Time is from the first dialling to an EXACT view; `own` and `server` are
processor time of the measured edge and of whoever gave it the snapshot. Starting a process and compiling are
not in it, nor is the way.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import random
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from bench.tables import plain
from kvcompass.index import IndexView, ShardTables, index_shape
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.upstream_choice import Bootstrap, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.warm import warm
from services.edge.fleet.index_feed import IndexFeed
from services.edge.fleet.view_service import ViewService
from services.maintenance.service import IndexService
from services.runtime.epoch import new_epoch, now_us
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.logs import configure_logging
from services.runtime.plan_file import load_plan
from services.wire import rpc

PLAN: Final = Path(__file__).parents[1] / "deploy" / "plans" / "three-regions.toml"
AIM_S: Final = 5.0
"""An edge is warm at a million entries within this time."""
_NEIGHBOUR: Final = "neighbour"
_START_S: Final = 180.0
_SETTLED_LEASES: Final = 100


@dataclass(frozen=True, slots=True)
class Found:
    """Medians of some runs."""

    source: str
    seconds: float
    own_cpu_s: float
    server_cpu_s: float


def plan_of(entries: int) -> Plan:
    """The example plan, with another edge in its first edge's region."""
    plan = load_plan(PLAN)
    return replace(
        plan,
        index=replace(plan.index, expected_entries=entries, worker_entries_max=4 * entries),
        edges=(*plan.edges, replace(plan.edges[0], id=_NEIGHBOUR)),
    )


def _filled(plan: Plan, entries: int) -> ShardTables:
    """Every table holds the same number of keys, at its first worker."""
    shape = index_shape(plan)
    tables = ShardTables(shape, 0, random_seed=1)
    keys = np.unique(np.random.default_rng(1).integers(0, 1 << 63, entries, dtype=np.uint64))
    for table, part in enumerate(np.array_split(keys, shape.tables)):
        tables.load(part, table, 0, np.ones(part.size, np.uint8))
    return tables


def _unit(out: Connection, entries: int) -> None:
    asyncio.run(_serve_unit(out, entries))


async def _serve_unit(out: Connection, entries: int) -> None:
    configure_logging("maintenance", "bench", "warning")
    plan = plan_of(entries)
    unit = MaintenanceUnit(
        plan,
        next(unit.id for unit in plan.units if unit.shard == 0),
        epoch=new_epoch(),
        layout=layout_fields(plan),
        tables=_filled(plan, entries),
        now_us=now_us() - _SETTLED_LEASES * plan.routing.lease_ms * 1_000,
    )
    service = IndexService(unit, now_us, flush_s=0.003, hello_timeout_s=10.0)
    server, port = await serve_grpc(
        lambda server: rpc.register_index_maintenance(server, service), "127.0.0.1:0"
    )
    ticking = asyncio.create_task(service.tick())
    out.send(port)
    await _answer_for_processor_time(out)
    ticking.cancel()
    await server.stop(0.0)


def _edge(out: Connection, entries: int, unit_port: int) -> None:
    asyncio.run(_serve_edge(out, entries, unit_port))


async def _serve_edge(out: Connection, entries: int, unit_port: int) -> None:
    configure_logging("edge", "bench", "warning")
    plan = plan_of(entries)
    warm(plan.index.layout, plan.index.value_bits)
    edge = _WarmingEdge(plan, _NEIGHBOUR, "units", {plan.units[0].address: f"127.0.0.1:{unit_port}"})
    views = ViewService((edge.relay,), now_us)
    server, port = await serve_grpc(
        lambda server: rpc.register_view_subscriptions(server, views), "127.0.0.1:0"
    )
    tasks = [
        asyncio.create_task(edge.feed(partial(views.changed, 0)).run()),
        asyncio.create_task(views.copy()),
    ]
    await edge.until_exact()
    out.send(port)
    await _answer_for_processor_time(out)
    for task in tasks:
        task.cancel()
    await server.stop(0.0)


async def _answer_for_processor_time(out: Connection) -> None:
    while await asyncio.to_thread(out.recv):
        out.send(time.process_time())


class _WarmingEdge:
    """As much of an edge as follows one shard."""

    def __init__(self, plan: Plan, name: str, bootstrap: Bootstrap, via: dict[str, str]) -> None:
        layout = layout_fields(plan)
        view = IndexView(index_shape(plan))
        handshake = Handshake(name, new_epoch(), PROTOCOL_VERSION, plan.plan_version, layout)
        self.follower = IndexFollower(0, view, handshake)
        self.relay = ViewRelay(
            self.follower, view, edge_id=name, layout=layout, plan_version=plan.plan_version
        )
        self.choice = UpstreamChoice(plan, name, 0, bootstrap=bootstrap)
        self._dialer = Dialer(via)
        self._exact = asyncio.Event()

    def feed(self, on_change: Any = None) -> IndexFeed:
        """Call it once."""

        def changed() -> None:
            if self.follower.state(now_us()) is FollowerState.EXACT:
                self._exact.set()
            if on_change is not None:
                on_change()

        return IndexFeed(ShardFeed(self.relay, self.choice, random.Random(1)), self._dialer, changed)

    async def until_exact(self) -> None:
        """Until the view is what the unit has."""
        async with asyncio.timeout(_START_S):
            await self._exact.wait()


def measure(entries: int, rounds: int) -> list[Found]:
    """Run all processes, and begin anew from each source `rounds` times."""
    context = multiprocessing.get_context("spawn")
    ends: dict[str, Connection] = {}
    ports: dict[str, int] = {}
    children = []
    for name, target in (("unit", _unit), ("edge", _edge)):
        ends[name], out = context.Pipe()
        arguments = (out, entries) if name == "unit" else (out, entries, ports["unit"])
        child = context.Process(target=target, args=arguments, daemon=True)
        child.start()
        children.append(child)
        ports[name] = _answer(ends[name])
    plan = plan_of(entries)
    configure_logging("edge", "bench", "warning")
    warm(plan.index.layout, plan.index.value_bits)
    runs: dict[str, list[tuple[float, float, float]]] = {"unit": [], "edge": []}
    for _ in range(rounds):
        for source, taken in runs.items():
            taken.append(asyncio.run(_warm(plan, source, ports, ends[source])))
    for end in ends.values():
        end.send(False)
    for child in children:
        child.join(10.0)
        child.kill()
    return [Found(source, *map(median, zip(*taken, strict=True))) for source, taken in runs.items()]


async def _warm(
    plan: Plan, source: str, ports: dict[str, int], server: Connection
) -> tuple[float, float, float]:
    """Seconds, own processor time and the server's."""
    via = {
        plan.units[0].address: f"127.0.0.1:{ports['unit']}",
        plan.edges[0].grpc_address: f"127.0.0.1:{ports['edge']}",
    }
    edge = _WarmingEdge(plan, plan.edges[0].id, "peer" if source == "edge" else "units", via)
    before_s = _processor_s(server)
    began, own_s = time.monotonic(), time.process_time()
    feeding = asyncio.create_task(edge.feed().run())
    await edge.until_exact()
    seconds, own_s = time.monotonic() - began, time.process_time() - own_s
    assert not edge.choice.fallbacks, "the neighbour served"
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    return seconds, own_s, _processor_s(server) - before_s


def _processor_s(server: Connection) -> float:
    server.send(True)
    return float(_answer(server))


def _answer(end: Connection) -> Any:
    if not end.poll(_START_S):
        raise SystemExit("a process of the benchmark does not answer")
    return end.recv()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000, help="in the shard [%(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="from each source [%(default)s]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.entries, options.rounds)
    print(table(found))
    if options.json:
        document = {
            "machine": {
                "processor": platform.machine(),
                "cpus": os.cpu_count(),
                "load": os.getloadavg()[0],
            },
            "entries": options.entries,
            "aim_s": AIM_S,
            "runs": [asdict(each) for each in found],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def table(found: list[Found]) -> str:
    """What was found."""
    head = ("from", "warm after, s", "own processor, s", "server's processor, s")
    rows = [
        (each.source, f"{each.seconds:.2f}", f"{each.own_cpu_s:.2f}", f"{each.server_cpu_s:.2f}")
        for each in found
    ]
    return plain(head, rows)


if __name__ == "__main__":
    main()
