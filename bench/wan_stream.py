"""How many patch groups a second get from a unit to an edge's view over a long way, and how late.

python -m bench.wan_stream --json out/wan-stream.json          # a minute

A maintenance unit, a relay that holds bytes back for as long as they would travel, and an edge's follower and
view: three processes, the services' own gRPC channels and servers between them. One worker's keys change
their tier at the offered rate, each a patch group. `delivered` is what the view applied a second; `late` is
when it applied a sequence less when the unit had it, the one way included. The least rate that matters is
promised to hold: 20,000 groups/s through 150 ms one way.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import socket
from bisect import bisect_left
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, cast

import numpy as np

from bench.tables import plain
from kvcompass.index import IndexView, ShardTables, index_shape
from kvcompass.keys import shard_of
from kvcompass.keys.digest import holdings_digest
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    Handshake,
    Refusal,
    Renewal,
)
from kvcompass.tier import Tier
from lab.relay.network import Network
from lab.relay.settings import LinkSettings, WireSettings
from services.maintenance.service import IndexService
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.logs import configure_logging
from services.runtime.plan_file import load_plan
from services.wire import rpc

PLAN: Final = Path(__file__).parents[1] / "deploy" / "plans" / "three-regions.toml"
RATES: Final = (20_000, 50_000, 100_000)
WAYS_MS: Final = (0.5, 75.0, 150.0)
AIM_GROUPS: Final = 20_000.0
AIM_MS: Final = 150.0
KEYS: Final = 50_000
_STEP_S: Final = 0.01
_SETTLE_S: Final = 2.0
"""Of a run, before anything is counted: windows open."""
_FLUSH_S: Final = 0.003
"""`services.maintenance.settings.Bounds.flush_ms`."""
_RENEW_US: Final = 1_000_000
_START_S: Final = 120.0
_NO_CONTEXT: Final = cast(rpc.Context, None)
"""The worker stands beside the unit: no gRPC is between them."""

Samples = list[tuple[int, int]]
"""(microseconds of the machine's monotonic clock, sequence)."""


@dataclass(frozen=True, slots=True)
class Found:
    """One run."""

    one_way_ms: float
    offered: float
    """Groups a second that the unit really made."""
    delivered: float
    late_p50_ms: float
    late_p99_ms: float
    snapshots: int
    """Beyond the first: how often the view fell off the unit's log."""
    resubscriptions: int


def _unit(out: Connection, rate: int, seconds: float) -> None:
    asyncio.run(_serve_unit(out, rate, seconds))


async def _serve_unit(out: Connection, rate: int, seconds: float) -> None:
    configure_logging("maintenance", "bench", "warning")
    plan = load_plan(PLAN)
    planned = next(unit for unit in plan.units if unit.shard == 0)
    unit = MaintenanceUnit(
        plan,
        planned.id,
        epoch=1,
        layout=layout_fields(plan),
        tables=ShardTables(index_shape(plan), 0, random_seed=1),
        now_us=now_us(),
    )
    service = IndexService(unit, now_us, flush_s=_FLUSH_S, hello_timeout_s=10.0)
    server, port = await serve_grpc(
        lambda server: rpc.register_index_maintenance(server, service), "127.0.0.1:0"
    )
    ticking = asyncio.create_task(service.tick())
    out.send(port)
    await asyncio.to_thread(out.recv)
    samples: Samples = []

    async def note() -> None:
        while True:
            samples.append((now_us(), unit.sequence))
            await asyncio.sleep(_STEP_S)

    noting = asyncio.create_task(note())
    async for answer in service.report(_worker(plan, rate, seconds), _NO_CONTEXT):
        if isinstance(answer, Refusal):
            raise SystemExit(f"the unit refuses the worker: {answer.message}")
    noting.cancel()
    out.send(samples)
    await asyncio.to_thread(out.recv)
    ticking.cancel()
    await server.stop(0.0)


async def _worker(plan: Plan, rate: int, seconds: float) -> AsyncIterator[AgentToUnit]:
    """What an agent says whose worker's KEYS keys change tier one after another, `rate` a second."""
    keys = np.random.default_rng(1).integers(0, 1 << 63, size=4 * KEYS, dtype=np.uint64)
    keys = np.unique(keys[shard_of(keys, plan.shards) == 0])[:KEYS]
    tiers = np.full(keys.size, Tier.VRAM, np.uint8)
    worker = plan.workers[0].id
    handshake = Handshake(worker, 1, PROTOCOL_VERSION, plan.plan_version, layout_fields(plan))
    sequence = 1
    yield AgentHello(handshake, worker, Renewal(0, holdings_digest(keys, tiers), keys.size))
    yield FullReport(sequence, keys, tiers.copy(), first=True, last=True)
    began = renewed = now_us()
    made = 0
    while (elapsed_us := now_us() - began) < seconds * 1e6:
        place = made % keys.size
        stop = min(place + int(rate * elapsed_us / 1e6) - made, keys.size)
        if stop > place:
            sequence += 1
            tiers[place:stop] = Tier.VRAM + Tier.DRAM - tiers[place:stop]
            yield Edits(sequence, keys[place:stop], tiers[place:stop].copy())
            made += stop - place
        if now_us() - renewed > _RENEW_US:
            renewed = now_us()
            yield Renewal(sequence, holdings_digest(keys, tiers), keys.size)
        await asyncio.sleep(_STEP_S)


def _relay(out: Connection, target: int, one_way_ms: float) -> None:
    asyncio.run(_carry(out, target, one_way_ms))


async def _carry(out: Connection, target: int, one_way_ms: float) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = free.getsockname()[1]
    wires = [WireSettings("edge", "unit", one_way_ms), WireSettings("unit", "edge", one_way_ms)]
    link = LinkSettings(f"127.0.0.1:{listen}", f"127.0.0.1:{target}", "edge", "unit")
    network = Network(wires, [link], random_seed=1)
    await network.start()
    out.send(listen)
    await asyncio.to_thread(out.recv)
    await network.stop()


async def _follow(port: int, ready: asyncio.Event, seconds: float) -> tuple[Samples, IndexFollower]:
    """Follow the unit as an edge does, and note how far the view is."""
    plan = load_plan(PLAN)
    view = IndexView(index_shape(plan))
    edge = Handshake(plan.edges[0].id, 1, PROTOCOL_VERSION, plan.plan_version, layout_fields(plan))
    follower = IndexFollower(0, view, edge)
    samples: Samples = []
    async with Dialer({}).channel(f"127.0.0.1:{port}") as channel:
        while True:
            call = rpc.subscribe(channel)()
            await call.write(follower.subscribe_request())
            ended = None
            while ended is None:
                async with asyncio.timeout(_START_S):
                    message = await rpc.read(call)
                assert message is not None, "the unit goes on"
                ended = follower.on_message(message, now_us())
                samples.append((now_us(), follower.applied_sequence))
                if follower.was_exact:
                    ready.set()
                if ready.is_set() and samples[-1][0] - samples[0][0] > seconds * 1e6:
                    call.cancel()
                    return samples, follower
            call.cancel()
            follower.stream_ended(ended.reason)


def measure(one_way_ms: float, rate: int, seconds: float) -> Found:
    """Run all three processes once."""
    context = multiprocessing.get_context("spawn")
    unit_end, unit_out = context.Pipe()
    unit = context.Process(target=_unit, args=(unit_out, rate, seconds + _SETTLE_S), daemon=True)
    unit.start()
    port = _answer(unit_end)
    relay_end, relay_out = context.Pipe()
    relay = context.Process(target=_relay, args=(relay_out, port, one_way_ms), daemon=True)
    relay.start()
    listen = _answer(relay_end)

    async def both() -> tuple[Samples, IndexFollower]:
        ready = asyncio.Event()
        following = asyncio.create_task(_follow(listen, ready, seconds + _SETTLE_S + 2.0))
        await asyncio.wait_for(ready.wait(), _START_S)
        unit_end.send("go")
        return await following

    seen, follower = asyncio.run(both())
    made: Samples = _answer(unit_end)
    for end in (unit_end, relay_end):
        end.send("stop")
    for process in (unit, relay):
        process.join(10.0)
        process.kill()
    return _found(one_way_ms, made, seen, follower)


def _answer(end: Connection) -> Any:
    if not end.poll(_START_S):
        raise SystemExit("a process of the benchmark does not answer")
    return end.recv()


def _found(one_way_ms: float, made: Samples, seen: Samples, follower: IndexFollower) -> Found:
    begin_us = made[0][0] + int(_SETTLE_S * 1e6)
    end_us = made[-1][0]
    counted = [(at, sequence) for at, sequence in made if at >= begin_us]
    applied = [(at, sequence) for at, sequence in seen if begin_us <= at <= end_us]
    sequences = [sequence for _, sequence in made]
    late_ms = [
        (at - made[place][0]) / 1e3
        for at, sequence in applied
        if 0 < (place := bisect_left(sequences, sequence)) < len(made)
    ]
    cuts = quantiles(late_ms, n=100) if len(late_ms) > 1 else [float("nan")] * 99
    return Found(
        one_way_ms=one_way_ms,
        offered=_per_s(counted),
        delivered=_per_s(applied),
        late_p50_ms=cuts[49],
        late_p99_ms=cuts[98],
        snapshots=follower.counters.snapshots - 1,
        resubscriptions=sum(follower.counters.resubscriptions.values()),
    )


def _per_s(samples: Samples) -> float:
    (first_us, first), (last_us, last) = samples[0], samples[-1]
    return 1e6 * (last - first) / max(last_us - first_us, 1)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="measured of a run [%(default)g]")
    parser.add_argument("--rates", nargs="+", type=int, default=list(RATES), metavar="N", help="groups/s")
    parser.add_argument("--ways", nargs="+", type=float, default=list(WAYS_MS), metavar="MS", help="one way")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = [measure(way, rate, options.seconds) for way in options.ways for rate in options.rates]
    print(table(found))
    if options.json:
        machine = {"processor": platform.machine(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
        document = {
            "machine": machine,
            "aim": {"groups_per_s": AIM_GROUPS, "one_way_ms": AIM_MS},
            "runs": [asdict(each) for each in found],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def table(found: list[Found]) -> str:
    """What was found."""
    head = (
        "one way, ms",
        "offered/s",
        "delivered/s",
        "late P50, ms",
        "late P99, ms",
        "snapshots",
        "resubscribed",
    )
    rows = [
        (
            f"{each.one_way_ms:g}",
            f"{each.offered:,.0f}",
            f"{each.delivered:,.0f}",
            f"{each.late_p50_ms:,.0f}",
            f"{each.late_p99_ms:,.0f}",
            f"{each.snapshots}",
            f"{each.resubscriptions}",
        )
        for each in found
    ]
    return plain(head, rows)


if __name__ == "__main__":
    main()
