"""Whoever answers at an engine's addresses cannot end its neighbours' agent, or lie beyond measure."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import zmq
import zmq.asyncio

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.roles.messages import AgentLoad
from kvcompass.roles.worker_agent import WorkerAgent
from services.runtime.http_server import HttpServer
from services.wire.load import decode_agent_load, encode_agent_load
from services.worker_agent import engine_follower, event_source
from services.worker_agent.engine_client import EngineClient, EngineError, MalformedError
from services.worker_agent.engine_follower import EngineFollower
from services.worker_agent.event_decoder import BatchError, EventDecoder
from services.worker_agent.event_source import LiveEvents
from services.worker_agent.load_sources.get_load import GetLoad
from services.worker_agent.load_sources.metrics_page import MetricsPage
from services.worker_agent.load_sources.metrics_route import PAGE_BYTES
from services.worker_agent.load_sources.v1_loads import V1Loads
from services.worker_agent.settings import EngineSettings
from tests.models.agent_fleets import agent_plan
from tests.services.agent_doubles import eventually

DEEP = 100_000


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[EngineClient]:
    """A client of an engine that answers every question with `body`."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    server = HttpServer(app, "127.0.0.1:0")
    await server.start()
    async with EngineClient(f"http://127.0.0.1:{server.port}", api_key="", timeout_ms=2_000) as client:
        yield client
    await server.stop(drain_s=0.0)


def loads(*ranks: dict[str, Any]) -> bytes:
    return orjson.dumps({"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 0, **rank} for rank in ranks]})


def v1_loads(*, stalled_ms: int = 30_000, clock: list[int] | None = None) -> V1Loads:
    return V1Loads(None, stalled_ms=stalled_ms, now_us=lambda: clock[0] if clock else 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (loads({"num_running_reqs": -1}), "loads[0].num_running_reqs"),
        (loads({"num_waiting_reqs": 2**32}), "loads[0].num_waiting_reqs"),
        (loads({"num_used_tokens": -5}), "loads[0].num_used_tokens"),
        (loads({"max_total_num_tokens": 2**63 - 1}), "loads[0].max_total_num_tokens"),
        (loads({"num_waiting_uncached_tokens": -1}), "loads[0].num_waiting_uncached_tokens"),
        (loads({"num_running_reqs": True}), "loads[0].num_running_reqs"),
        (loads({"dp_rank": -1}), "loads[0].dp_rank"),
        (loads(*[{}] * 1_025), "loads"),
        (loads({"x": "a" * (2 << 20)}), "/v1/loads"),
        (
            b'{"loads":[{"num_running_reqs":1,"num_waiting_reqs":0,"x":%b%b}]}' % (b"[" * DEEP, b"]" * DEEP),
            "/v1/loads",
        ),
        (b'{"loads":[]}', "dp_rank"),
        (b"not json", "/v1/loads"),
    ],
    ids=lambda value: str(value[:60]),
)
async def test_a_load_that_cannot_be_names_its_field(body: bytes, field: str) -> None:
    async with answering(body) as client:
        with pytest.raises(MalformedError) as caught:
            await v1_loads().read(client)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("rank", "field"),
    [
        ({"num_reqs": -1, "num_waiting_reqs": 0}, "[0].num_reqs"),
        ({"num_reqs": 2, "num_waiting_reqs": 3}, "num_waiting_reqs"),
        (
            {"num_reqs": 2, "num_waiting_reqs": 1, "num_tokens": 1, "num_pending_tokens": 2},
            "num_pending_tokens",
        ),
        ({"num_reqs": 2}, "[0]"),
    ],
    ids=str,
)
async def test_a_get_load_that_cannot_be_names_its_field(rank: dict[str, int], field: str) -> None:
    async with answering(orjson.dumps([rank])) as client:
        with pytest.raises(MalformedError) as caught:
            await GetLoad(None).read(client)
    assert caught.value.field == field


async def test_what_is_in_use_stands_while_a_get_load_counts_waiting_prompts_in() -> None:
    source = GetLoad(None)
    quiet = {"num_reqs": 2, "num_waiting_reqs": 0, "num_tokens": 700}
    for rank, used in (
        ({"num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 9_000}, 0),
        (quiet, 700),
        ({"num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 9_000}, 700),
        ({"num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 9_000, "num_pending_tokens": 8_000}, 1_000),
        (quiet, 700),
    ):
        async with answering(orjson.dumps([rank])) as client:
            assert (await source.read(client)).used_tokens == used


@pytest.mark.parametrize(
    ("page", "field"),
    [
        (b"sglang:num_running_reqs NaN\n", "sglang:num_running_reqs"),
        (b"sglang:num_running_reqs +Inf\n", "sglang:num_running_reqs"),
        (b"sglang:num_running_reqs -1\n", "sglang:num_running_reqs"),
        (b"sglang:num_running_reqs 1e9\n", "sglang:num_running_reqs"),
        (b"sglang:num_running_reqs soon\n", "sglang:num_running_reqs"),
        (b'sglang:num_running_reqs{a="\xff"} 1\n', "sglang:num_running_reqs"),
        (b"vllm:num_requests_running 0\nvllm:kv_cache_usage_perc 1.5\n", "vllm:kv_cache_usage_perc"),
        (b"sglang:num_queue_reqs 0\n" * 20_000, "sglang:num_queue_reqs"),
        (b"# " + b"x" * PAGE_BYTES, "/metrics/"),
        (b"up 1\n", "/metrics"),
        (b"<html>welcome</html>", "/metrics"),
    ],
    ids=lambda value: str(value[:50]),
)
async def test_a_page_of_metrics_that_cannot_be_names_the_metric(page: bytes, field: str) -> None:
    async with answering(page) as client:
        with pytest.raises(EngineError) as caught:
            await MetricsPage(None).read(client)
    assert caught.value.field == field


async def test_a_scheduler_that_writes_nothing_new_hangs_though_http_answers() -> None:
    clock = [0]
    source = v1_loads(stalled_ms=1_000, clock=clock)
    async with answering(loads({"timestamp": 5.0})) as client:
        await source.read(client)
        clock[0] = 1_000_000
        await source.read(client)
        clock[0] = 1_001_000
        with pytest.raises(EngineError, match="scheduler hangs"):
            await source.read(client)
    async with answering(loads({"timestamp": 5.5})) as client:
        await source.read(client)
    async with answering(loads({})) as client:
        await source.read(client)
        clock[0] = 9_000_000
        await source.read(client)


async def test_a_redirect_is_not_followed() -> None:
    """It would take the engine's key to wherever it says."""
    asked: list[str] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        headers = [(b"location", b"/elsewhere"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    server = HttpServer(app, "127.0.0.1:0")
    await server.start()
    async with EngineClient(f"http://127.0.0.1:{server.port}", api_key="k" * 16, timeout_ms=2_000) as client:
        with pytest.raises(EngineError, match="answers 307"):
            await v1_loads().read(client)
    await server.stop(drain_s=0.0)
    assert asked == ["/v1/loads"]


async def test_the_largest_load_that_is_believed_can_be_sent() -> None:
    most = {
        "num_running_reqs": 1 << 20,
        "num_waiting_reqs": 1 << 20,
        "num_used_tokens": 1 << 48,
        "max_total_num_tokens": 1 << 48,
    }
    async with answering(loads(*[most] * 1_024)) as client:
        told = await v1_loads().read(client)
    load = WorkerLoad(
        "w",
        WorkerState.READY,
        queue_ms=0.0,
        running=told.running,
        waiting=told.waiting,
        used_tokens=told.used_tokens,
        max_tokens=told.max_tokens,
    )
    message = AgentLoad(None, 1, 1, load)
    assert decode_agent_load(encode_agent_load(message)) == message


@pytest.mark.parametrize(
    "payload", [b"\x91" * DEEP, b"\x81\xa1a" * DEEP, b"\x92\x00" * DEEP], ids=["arrays", "maps", "batches"]
)
def test_a_deeply_nested_batch_is_no_batch(payload: bytes) -> None:
    with pytest.raises(BatchError, match="nested too deeply"):
        EventDecoder().decode(payload)


@asynccontextmanager
async def publishing() -> AsyncIterator[tuple[zmq.asyncio.Socket, LiveEvents]]:
    """A publisher, and an agent's end connected to it."""
    context = zmq.asyncio.Context()
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    try:
        async with LiveEvents(context, f"tcp://127.0.0.1:{port}") as live, asyncio.timeout(10):
            await live.connect(5)
            await publisher.recv()
            yield publisher, live
    finally:
        context.destroy(linger=0)


async def test_a_frame_beyond_the_bound_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_source, "_FRAME_BYTES", 100_000)
    async with publishing() as (publisher, live):
        await publisher.send_multipart([b"t", (1).to_bytes(8, "big"), bytes(90_000)])
        assert await live.next(5_000) == (1, bytes(90_000))
        await publisher.send_multipart([b"t", (2).to_bytes(8, "big"), bytes(110_000)])
        await live.disconnected()


async def test_the_end_mark_is_no_number() -> None:
    """Taken as one, the next replay would be asked from a number that no eight bytes hold."""
    async with publishing() as (publisher, live):
        await publisher.send_multipart([b"t", b"\xff" * 8, b"x"])
        await publisher.send_multipart([b"t", (3).to_bytes(8, "big"), b"y"])
        assert await live.next(5_000) == (3, b"y")


async def test_a_failing_socket_is_a_reason_to_attach_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    class Failing(LiveEvents):
        def __init__(self, *_: Any) -> None:
            nonlocal attempts
            attempts += 1
            raise zmq.ZMQError(errno.EMFILE)

    monkeypatch.setattr(engine_follower, "LiveEvents", Failing)
    plan = agent_plan()
    context = zmq.asyncio.Context()
    async with answering(loads({})) as client:
        follower = EngineFollower(
            WorkerAgent(plan, plan.workers[0].id, 1),
            client,
            context,
            dial=lambda address: address,
            settings=EngineSettings(),
            new_epoch=lambda: 2,
            publish=lambda _: None,
            overhears=lambda _: None,
        )
        running = asyncio.create_task(follower.run())
        follower.engine_answers()
        await eventually(lambda: attempts >= 2 or running.done(), "attached anew")
        assert not running.done()
        assert "sockets fail" in follower.problem
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    context.destroy(linger=0)
