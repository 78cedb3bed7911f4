"""Each source of load, end to end from the engine double to a worker agent; the choice among them."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import zmq
import zmq.asyncio

from kvcompass.roles.queue_estimate import EngineLoad
from services.runtime.epoch import now_us
from services.worker_agent.engine_client import EngineClient, EngineError, MalformedError
from services.worker_agent.load_sources.load_socket import LoadSocket, _load, load_endpoint
from services.worker_agent.load_sources.reader import LoadReader, Told
from services.worker_agent.load_sources.source import SourceKind
from services.worker_agent.settings import EngineSettings
from tests.services.mock_engine_rig import ANY_PORT, PATIENCE_S, Rig, running

PROMPT = list(range(100, 420))
SHORT = list(range(500, 564))
CAPACITY = 244_140 // 16 * 16
"""The double's default cache, in whole pages."""
LONG = 60_000
"""Tokens of an answer: 6 s of the double's."""
RECENT_US = 500_000
NO_LOADS = ("/v1/loads",)
ONLY_METRICS = ("/v1/loads", "/get_load")


@asynccontextmanager
async def reading(rig: Rig, rank: int | None = None, **settings: Any) -> AsyncIterator[LoadReader]:
    """A reader of the double's load."""
    url = str(rig.client.base_url)
    context = zmq.asyncio.Context()
    async with EngineClient(url, api_key="", timeout_ms=2_000) as client:
        reader = LoadReader(
            client,
            context,
            worker_id="us-0",
            url=url,
            dial=lambda address: address,
            rank=rank,
            settings=EngineSettings(**settings),
            now_us=now_us,
        )
        try:
            yield reader
        finally:
            reader.close()
            context.destroy(linger=0)


async def until(reader: LoadReader, holds: Callable[[EngineLoad], bool]) -> EngineLoad:
    """Read until a load is like that."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            load = (await reader.read(RECENT_US)).load
            if holds(load):
                return load
            await asyncio.sleep(0.01)


async def until_from(reader: LoadReader, kind: SourceKind) -> EngineLoad:
    """Read until a load comes from there."""
    return await until(reader, lambda _: reader.kind is kind)


@asynccontextmanager
async def answering(rig: Rig, **fields: Any) -> AsyncIterator[None]:
    """A request runs meanwhile."""
    under_way = asyncio.create_task(rig.generate(SHORT, tokens=LONG, **fields))
    try:
        yield
    finally:
        await rig.client.post("/abort_request", json={"abort_all": True})
        await asyncio.wait_for(under_way, PATIENCE_S)


SOURCES: list[tuple[dict[str, Any], SourceKind, tuple[str, ...]]] = [
    (
        {"event_profile": "0.5.10"},
        SourceKind.V1_LOADS,
        ("waiting_uncached_tokens", "prefill_rate", "uncached_tokens_of_a_request"),
    ),
    ({"event_profile": "0.5.23"}, SourceKind.V1_LOADS, ("uncached_tokens_of_a_request",)),
    (
        {"event_profile": "0.5.23", "load_publish_endpoint": ANY_PORT},
        SourceKind.LOAD_SOCKET,
        ("uncached_tokens_of_a_request",),
    ),
    (
        {"event_profile": "0.5.10", "routes_off": NO_LOADS},
        SourceKind.GET_LOAD,
        ("waiting_uncached_tokens", "prefill_rate", "uncached_tokens_of_a_request", "memory"),
    ),
    (
        {"event_profile": "0.5.11", "routes_off": NO_LOADS},
        SourceKind.GET_LOAD,
        ("waiting_uncached_tokens", "prefill_rate", "uncached_tokens_of_a_request", "memory"),
    ),
    (
        {"event_profile": "0.5.10", "routes_off": ONLY_METRICS},
        SourceKind.SGLANG_METRICS,
        ("waiting_uncached_tokens", "prefill_rate"),
    ),
]


@pytest.mark.parametrize(("engine", "kind", "lacks"), SOURCES, ids=lambda value: str(value)[:60])
async def test_a_running_request_is_seen_and_what_is_lacking_is_said(
    engine: dict[str, Any], kind: SourceKind, lacks: tuple[str, ...]
) -> None:
    async with running(**engine) as rig, reading(rig) as reader:
        await until_from(reader, kind)
        async with answering(rig):
            load = await until(reader, lambda load: load.running == 1)
            assert load.waiting == 0
            assert len(SHORT) <= load.used_tokens <= len(SHORT) + LONG + 16
            assert load.max_tokens == (0 if "memory" in lacks else CAPACITY)
            assert reader.lacks == lacks
        await until(reader, lambda load: load.running == 0)


@pytest.mark.parametrize("published", [False, True])
async def test_prefill_counters_come_from_0_5_23_both_ways(published: bool) -> None:
    endpoint = ANY_PORT if published else ""
    kind = SourceKind.LOAD_SOCKET if published else SourceKind.V1_LOADS
    async with running(event_profile="0.5.23", load_publish_endpoint=endpoint) as rig, reading(rig) as reader:
        before = await until_from(reader, kind)
        await rig.generate(PROMPT)
        await rig.generate(PROMPT)
        after = await until(
            reader, lambda load: load.prefill_uncached_tokens != before.prefill_uncached_tokens
        )
        assert after.prefill_uncached_tokens is not None and before.prefill_uncached_tokens is not None
        assert after.prefill_busy_us is not None and before.prefill_busy_us is not None
        assert (
            len(PROMPT) <= after.prefill_uncached_tokens - before.prefill_uncached_tokens <= len(PROMPT) + 16
        )
        assert after.prefill_busy_us > before.prefill_busy_us


async def test_metrics_tell_what_an_answered_request_computed() -> None:
    async with running(routes_off=ONLY_METRICS) as rig, reading(rig) as reader:
        before = (await reader.read(RECENT_US)).load
        await rig.generate(PROMPT, tokens=2)
        await rig.generate([*PROMPT, *SHORT], tokens=2)
        after = (await reader.read(RECENT_US)).load
        assert (before.finished_requests, before.finished_uncached_tokens) == (0, 0)
        assert (after.finished_requests, after.finished_uncached_tokens) == (2, len(PROMPT) + len(SHORT))


@pytest.mark.parametrize(
    ("engine", "kind"),
    [(engine, kind) for engine, kind, _ in SOURCES if kind is not SourceKind.LOAD_SOCKET],
    ids=str,
)
async def test_a_worker_that_is_one_rank_has_that_ranks_load(
    engine: dict[str, Any], kind: SourceKind
) -> None:
    async with (
        running(dp_size=3, **engine) as rig,
        answering(rig, routed_dp_rank=1),
        reading(rig, 1) as busy,
        reading(rig, 2) as idle,
        reading(rig) as whole,
    ):
        await until(busy, lambda load: load.running == 1)
        await until(whole, lambda load: load.running == 1)
        assert busy.kind is whole.kind is kind
        one, all_ = (await idle.read(RECENT_US)).load, (await whole.read(RECENT_US)).load
        assert one.running == 0
        assert all_.max_tokens == 3 * one.max_tokens


async def test_a_rank_that_is_not_there_is_named() -> None:
    async with running(dp_size=2) as rig, reading(rig, 7) as reader:
        with pytest.raises(EngineError, match="no rank 7"):
            await reader.read(RECENT_US)


async def test_another_source_is_taken_when_the_engine_was_replaced() -> None:
    """An upgrade in place: the route is gone, and what is there is found without being told."""
    async with running(event_profile="0.5.11", routes_off=NO_LOADS) as rig, reading(rig) as reader:
        await reader.read(RECENT_US)
        assert (reader.kind, reader.choices) == (SourceKind.GET_LOAD, 1)
        del rig.server._app._routes["GET", "/get_load"]
        await reader.read(RECENT_US)
        assert (reader.kind, reader.choices) == (SourceKind.SGLANG_METRICS, 2)


async def test_what_is_better_is_taken_when_the_reader_is_told_to_look_again() -> None:
    async with running(routes_off=ONLY_METRICS) as rig, reading(rig) as reader:
        await reader.read(RECENT_US)
        rig.server._app._routes["GET", "/v1/loads"] = rig.server._app._loads
        await reader.read(RECENT_US)
        assert reader.kind is SourceKind.SGLANG_METRICS
        reader.reconsider()
        await reader.read(RECENT_US)
        assert (reader.kind, reader.choices) == (SourceKind.V1_LOADS, 2)


async def test_an_engine_that_tells_nothing_is_told_what_to_change() -> None:
    everything = ("/v1/loads", "/get_load", "/metrics", "/metrics/")
    async with running(routes_off=everything) as rig, reading(rig) as reader:
        with pytest.raises(EngineError, match="--enable-metrics") as caught:
            await reader.read(RECENT_US)
    assert caught.value.field == "load"
    assert "/v1/loads answers 404" in str(caught.value)


async def test_an_sglang_taken_for_a_vllm_is_told_so_where_it_tells_nothing() -> None:
    async with running(routes_off=("/metrics", "/metrics/")) as rig, reading(rig, kind="vllm") as reader:
        with pytest.raises(EngineError, match=r'set engine\.kind = "sglang"'):
            await reader.read(RECENT_US)


async def test_a_source_that_is_gone_is_not_listened_to_beside_the_next() -> None:
    endpoint = {"event_profile": "0.5.23", "load_publish_endpoint": ANY_PORT}
    async with running(**endpoint) as rig, reading(rig) as reader:
        await until_from(reader, SourceKind.LOAD_SOCKET)
        del rig.server._app._routes["GET", "/v1/loads"]
        await until_from(reader, SourceKind.SGLANG_METRICS)
        async with answering(rig):
            await until(reader, lambda load: load.running == 1)
            await asyncio.sleep(0.2)
            await reader.read(RECENT_US)
            assert reader.kind is SourceKind.SGLANG_METRICS


class Scripted:
    """A source, the best there is, that answers as the test says."""

    kind = SourceKind.V1_LOADS
    is_page = False

    def __init__(self) -> None:
        self.answers: EngineLoad | EngineError = MalformedError("no sense", field="loads")
        self.asked = 0

    async def read(self, _client: EngineClient) -> EngineLoad:
        self.asked += 1
        if isinstance(self.answers, EngineError):
            raise self.answers
        return self.answers


@asynccontextmanager
async def with_a_better(rig: Rig) -> AsyncIterator[tuple[LoadReader, Scripted, list[int]]]:
    """A reader of `/get_load` beside which a better source is; and its clock."""
    clock, best = [0], Scripted()
    async with reading(rig) as reader:
        reader._now_us = lambda: clock[0]
        worse = reader._candidates()[1:]
        reader._candidates = lambda: [best, *worse]  # type: ignore[method-assign]
        assert (await reader.read(RECENT_US)).load.running == 0
        assert (reader.kind, best.asked) == (SourceKind.GET_LOAD, 1)
        yield reader, best, clock


async def test_one_answer_without_sense_is_no_reason_to_stay_with_a_worse_source() -> None:
    async with running(routes_off=NO_LOADS) as rig, with_a_better(rig) as (reader, best, clock):
        await reader.read(RECENT_US)
        clock[0] = 60_000_000
        await reader.read(RECENT_US)
        await reader.read(RECENT_US)
        assert (reader.kind, best.asked) == (SourceKind.GET_LOAD, 2), "looked at each minute"
        best.answers = EngineLoad(5, 0, 0, 0)
        clock[0] = 119_999_999
        assert (await reader.read(RECENT_US)).load.running == 0
        clock[0] = 120_000_000
        assert (await reader.read(RECENT_US)).load.running == 5
        assert reader.kind is SourceKind.V1_LOADS


async def test_a_better_source_that_hangs_is_waited_for_once() -> None:
    async with running(routes_off=NO_LOADS) as rig, with_a_better(rig) as (reader, best, clock):
        best.answers = EngineError("not in time")
        for minute in range(1, 4):
            clock[0] = minute * 60_000_000
            assert (await reader.read(RECENT_US)).load.running == 0
        assert best.asked == 2


async def test_a_silent_engine_is_no_reason_to_choose_another_source() -> None:
    async with running() as rig, reading(rig, load_timeout_ms=100) as reader:
        await reader.read(RECENT_US)
        await rig.server.stop(drain_s=0.0)
        with pytest.raises(EngineError):
            await reader.read(RECENT_US)
        assert (reader.kind, reader.choices) == (SourceKind.V1_LOADS, 1)


PUBLISHES = {"event_profile": "0.5.23", "load_publish_endpoint": ANY_PORT}


async def test_an_engine_that_publishes_is_asked_while_no_answer_is_recent_and_still_counts_as_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    ask = EngineClient.get

    async def counted(client: EngineClient, path: str, decoder: Any) -> Any:
        asked.append(path)
        return await ask(client, path, decoder)

    monkeypatch.setattr(EngineClient, "get", counted)
    async with running(**PUBLISHES) as rig, reading(rig) as reader:
        await until_from(reader, SourceKind.LOAD_SOCKET)
        choices, before = reader.choices, len(asked)
        clock, seconds = reader._now_us, 2.5
        began = clock()
        while clock() - began < 1e6 * seconds:
            await reader.read(RECENT_US)
            await asyncio.sleep(0.02)
        assert 1 <= len(asked) - before <= 1e6 * seconds / RECENT_US + 1
        assert (reader.kind, reader.choices) == (SourceKind.LOAD_SOCKET, choices)


async def test_what_publishes_does_not_hide_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dead(_client: EngineClient, path: str, _decoder: Any) -> Any:
        raise EngineError("nobody is there", field=path)

    async with running(**PUBLISHES) as rig, reading(rig) as reader:
        await until_from(reader, SourceKind.LOAD_SOCKET)
        monkeypatch.setattr(EngineClient, "get", dead)
        with pytest.raises(EngineError, match="nobody is there"):
            async with asyncio.timeout(3.0):
                while True:
                    await reader.read(RECENT_US)
                    await asyncio.sleep(0.02)
        with pytest.raises(EngineError, match="nobody is there"):
            await reader.read(RECENT_US)


async def test_what_is_published_waits_for_no_answer_and_a_hang_is_told_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, release = EngineClient.get, asyncio.Event()

    async def slow(client: EngineClient, path: str, decoder: Any) -> Any:
        await release.wait()
        if dead:
            raise EngineError("does not answer in time", field=path)
        return await ask(client, path, decoder)

    dead = False
    async with running(**PUBLISHES) as rig, reading(rig) as reader:
        await until_from(reader, SourceKind.LOAD_SOCKET)
        last = await reader.read(0)
        monkeypatch.setattr(EngineClient, "get", slow)
        async with answering(rig):
            told = await _published(reader, lambda told: told.load.running == 1)
            assert last.answered_us == told.answered_us < told.heard_us
            again = await reader.read(0)
            assert told.heard_us <= again.heard_us < reader._now_us() - 10_000 or again.load != told.load
            release.set()
            answered = await _published(reader, lambda told: told.answered_us > last.answered_us)
            assert answered.heard_us == answered.answered_us
            newer = await reader.read(RECENT_US)
            assert newer.heard_us >= answered.heard_us, "what was published before it is older"
            dead = True
            with pytest.raises(EngineError, match="in time"):
                await _published(reader, lambda _: False)
            with pytest.raises(EngineError, match="in time"):
                await reader.read(0)


async def _published(reader: LoadReader, holds: Callable[[Told], bool]) -> Told:
    async with asyncio.timeout(PATIENCE_S):
        while not holds(told := await reader.read(0)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return told


async def test_the_socket_of_a_rank_is_at_the_base_port_plus_its_number() -> None:
    dialled: list[str] = []

    def dial(address: str) -> str:
        dialled.append(address)
        return address

    async with running(event_profile="0.5.23", dp_size=2, load_publish_endpoint=ANY_PORT) as rig:
        async with reading(rig, 1) as reader:
            reader._dial = dial
            await reader.read(RECENT_US)
        info = (await rig.client.get("/server_info")).json()["kv_events"]
        host = urlsplit(str(rig.client.base_url)).hostname
        assert dialled == [f"tcp://{host}:{info['load_endpoint_port_base'] + 1}"]
        async with reading(rig) as whole:
            whole._dial = dial
            await whole.read(RECENT_US)
        assert len(dialled) == 1, "a worker of several ranks asks for their sum"


DEEP_STAT = b"\x9c" + msgspec.msgpack.encode("LoadStat") + bytes(10) + b"\x91" * 5_000
"""A load with one field more than is known, which is an array in an array in ..."""


@asynccontextmanager
async def published(
    clock: Callable[[], int] = now_us,
) -> AsyncIterator[tuple[zmq.asyncio.Socket, LoadSocket]]:
    """A publisher that says what it is told to, and who listens."""
    context = zmq.asyncio.Context()
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    socket = LoadSocket(context, f"tcp://127.0.0.1:{port}", clock, 3_000)
    try:
        await asyncio.wait_for(publisher.recv(), PATIENCE_S)
        yield publisher, socket
    finally:
        socket.close()
        context.destroy(linger=0)


async def heard(socket: LoadSocket) -> EngineLoad:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            published = socket.newest()
            if published is not None:
                return published.load
            await asyncio.sleep(0.01)


async def test_the_newest_published_load_counts_and_later_versions_may_append() -> None:
    encode = msgspec.msgpack.encode
    async with published() as (publisher, socket):
        spoke = socket.speaks
        for running_requests in range(5):
            stat = ["LoadStat", running_requests, 1, 2, 3, None, 4, 5, 6, 7, 8, "new", {"more": 9}]
            await publisher.send_multipart([b"load", bytes(8), encode(stat)])
        await publisher.send_multipart([b"load", bytes(8), encode(["LoadStat", 9, 1, 2, 3])])
        await asyncio.sleep(0.2)
        assert await heard(socket) == EngineLoad(9, 1, 2, 3)
        assert (spoke, socket.speaks) == (False, True)
        assert await heard(socket) == EngineLoad(9, 1, 2, 3), "it has not changed"


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([b"load", bytes(8), msgspec.msgpack.encode(["LoadStat", -1, 0, 0, 0])], "[1]"),
        ([b"load", bytes(8), msgspec.msgpack.encode(["LoadStat", 0, 0, 0, "many"])], "[4]"),
        ([b"load", bytes(8), msgspec.msgpack.encode(["OtherStat", 0, 0, 0, 0])], "OtherStat"),
        ([b"load", bytes(8), b"\xc1"], "cannot be used"),
        ([b"load", b"\x91" * 5_000], "2 frames"),
        ([b"load", bytes(8), DEEP_STAT], "nested too deeply"),
        ([b"load2", bytes(8), msgspec.msgpack.encode(["LoadStat", 1, 0, 0, 0])], "a load of"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_published_and_is_no_load_is_counted_and_named(
    frames: list[bytes], problem: str
) -> None:
    async with published() as (publisher, socket):
        await publisher.send_multipart(frames)
        await publisher.send_multipart([b"load", bytes(8), msgspec.msgpack.encode(["LoadStat", 7, 0, 0, 0])])
        assert (await heard(socket)).running == 7
        assert socket.malformed == 1
        with pytest.raises(MalformedError, match=re.escape(problem)):
            _load(frames)


async def test_a_socket_that_zmq_gave_up_is_opened_anew() -> None:
    """So it does after one frame that is too long."""
    clock = [0]
    stat = msgspec.msgpack.encode(["LoadStat", 7, 0, 0, 0])
    async with published(lambda: clock[0]) as (publisher, socket):
        await publisher.send_multipart([b"load", bytes(8), b"x" * 20_000])
        assert (await asyncio.wait_for(publisher.recv(), PATIENCE_S))[:1] == b"\x00", "it hung up"
        clock[0] = 3_000_000
        assert socket.newest() is None
        clock[0] = 3_000_001
        assert socket.newest() is None
        assert (await asyncio.wait_for(publisher.recv(), 3.0))[:1] == b"\x01", "and listens again"
        await publisher.send_multipart([b"load", bytes(8), stat])
        assert (await heard(socket)).running == 7
        clock[0] += 3_000_000
        assert socket.speaks
        assert socket.newest() is None, "it was told too long ago"
        await publisher.send_multipart([b"load", bytes(8), stat])
        assert (await heard(socket)).running == 7, "the one that speaks is kept"


@pytest.mark.parametrize(
    ("url", "rank", "endpoint"),
    [
        ("http://h:80", None, "tcp://h:6000"),
        ("http://[::1]:80", 2, "tcp://[::1]:6002"),
        ("http://h:80/", 0, "tcp://h:6000"),
        ("https://h", 1, "tcp://h:6001"),
        ("http://h:80", 60_000, None),
    ],
)
async def test_the_load_is_published_at_the_engines_host(
    url: str, rank: int | None, endpoint: str | None
) -> None:
    class Told:
        async def get(self, _path: str, decoder: Any) -> Any:
            return decoder.decode(b'{"kv_events":{"load_endpoint_port_base":6000}}')

    assert await load_endpoint(Told(), url, rank) == endpoint  # type: ignore[arg-type]
