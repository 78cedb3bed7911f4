"""A process that stands still is noticed at both ends of its connections, though its kernel takes all."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.unit_report import UnitReport
from services.runtime.grpc_transport import _KEEPALIVE, PROMPT_ANSWER_MS, Dialer
from services.worker_agent.report_stream import ReportStream
from services.worker_agent.settings import StreamSettings
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import connected, served, until
from tests.services.held_nothing import HeldNothing
from tests.services.test_maintenance_streams import settle, twin

PLAN = replication_plan()
TCP_USER_TIMEOUT = 18
"""Linux's number: Python 3.11 has no name for it everywhere."""


@asynccontextmanager
async def peer(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A frozen_peer that is up, and its first line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.services.frozen_peer", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        yield process, line.decode().strip()
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        await process.wait()


@pytest.mark.parametrize("renewing", [True, False])
async def test_an_agent_notices_a_unit_that_stands_still(renewing):
    """An unanswered ping ends the connection; what gRPC waits by itself is a minute."""
    async with peer("unit") as (unit, port):
        dialer = Dialer({}, answer_ms=PROMPT_ANSWER_MS)
        async with dialer.channel(f"127.0.0.1:{port}") as channel:
            stream = ReportStream(
                UnitReport(HeldNothing(PLAN.workers[0]), 0, layout_fields(PLAN), 1, lease_ms=3_000),
                channel,
                unit_id="unit-0",
                worker_id="a-0",
                vouches=lambda: True,
                may_renew=lambda: renewing,
                settings=StreamSettings(),
            )
            running = asyncio.create_task(stream.run())
            await until(lambda: not stream.problem)
            unit.send_signal(signal.SIGSTOP)
            await until(lambda: bool(stream.problem), bound_s=30)
            assert stream.connects == 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.slow
async def test_a_unit_notices_an_edge_that_stands_still():
    """Nothing is edited: it is sent a watermark now and then, which its kernel takes for a long time."""
    async with served(PLAN, watermark_period_us=1_000_000) as unit:
        await settle(PLAN, unit, *WORKERS)
        async with peer("edge", unit.address) as (edge, _):
            assert unit.unit.subscriber_lags().keys() == {"edge-a"}
            edge.send_signal(signal.SIGSTOP)
            await until(lambda: unit.unit.subscriber_lags() == {}, bound_s=40)
            assert unit.unit.counters.stalled == 0, "it is the connection that was found out"
            async with connected(twin(PLAN, "a-0"), unit.address) as agent:
                await agent.edit({1: 1})
                await agent.acknowledged()


async def test_a_way_on_which_nothing_is_confirmed_breaks_at_both_ends():
    """By TCP's own time; the connection's pings see to it that there is something to confirm."""
    keepalive = dict(_KEEPALIVE)
    async with served(PLAN) as unit, connected(twin(PLAN, "a-0"), unit.address):
        port = int(unit.address.rpartition(":")[2])
        ends = [end for end in open_connections() if port in (end.getsockname()[1], end.getpeername()[1])]
        timeouts = [end.getsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT) for end in ends]
        for end in ends:
            end.close()
        assert len(timeouts) == 2
        assert set(timeouts) == {keepalive["grpc.keepalive_timeout_ms"]}


def open_connections() -> Iterator[socket.socket]:
    """Of this process, each by a descriptor of its own."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            end = socket.socket(fileno=os.dup(int(descriptor.name)))
        except OSError:
            continue
        try:
            is_tcp = end.family in (socket.AF_INET, socket.AF_INET6) and bool(end.getpeername())
        except OSError:
            is_tcp = False
        if is_tcp:
            yield end
        else:
            end.close()
