"""An engine, a maintenance unit and an edge as a worker agent meets them: real sockets, scripted insides."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
import orjson

from kvcompass.engine_events import AllBlocksCleared, BlockStored, EngineEvent
from kvcompass.fleet.load import WorkerLoad
from kvcompass.keys import namespace, prefix_keys
from kvcompass.keys.digest import holdings_digest
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    AgentLoad,
    AgentToUnit,
    Edits,
    FullReport,
    Handshake,
    LoadReply,
    Refusal,
    RegionBroadcast,
    Renewal,
    ReportRequest,
    UnitToAgent,
    Welcome,
)
from services.mock_sglang.events.publisher import EventPublisher
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.profiles.array_events import encode_batch
from services.runtime.grpc_transport import serve_grpc
from services.runtime.http_server import HttpServer
from services.wire.rpc import Context, register_index_maintenance, register_load_exchange
from tests.models.agent_fleets import SALT

BLOCK = 4


async def eventually(holds: Callable[[], bool], what: str, timeout_s: float = 8.0) -> None:
    """Wait until something holds."""
    try:
        async with asyncio.timeout(timeout_s):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


class ScriptedEngine:
    """Publishes what the test says, from batch 0; answers `/v1/loads` and `/server_info`."""

    def __init__(self, ring_batches: int = 10_000) -> None:
        self._ring = ring_batches
        self._publisher: EventPublisher | None = None
        self._replay: asyncio.Task[None] | None = None
        self._http: HttpServer | None = None
        self._url_port = 0
        self._events = self._replay_at = "tcp://127.0.0.1:*"
        self.loads: dict[str, int] = {"num_running_reqs": 0, "num_waiting_reqs": 0}
        self.info: dict[str, Any] | None = {"version": "0.5.10", "page_size": BLOCK}
        """`/server_info`; None: there is none."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._url_port}"

    @property
    def events(self) -> str:
        return self._events

    @property
    def replay(self) -> str:
        return self._replay_at

    async def start(self) -> None:
        """Start a new process at the addresses of the one before; its cache is empty, which batch 0 says."""
        self._publisher = EventPublisher(
            PROFILES["0.5.10"], self._events, self._replay_at, "kv-events", self._ring
        )
        self._events, self._replay_at = self._publisher.endpoint, self._publisher.replay_endpoint
        self._replay = asyncio.create_task(self._publisher.serve_replay())
        self.publish(AllBlocksCleared())
        await self.answer()

    async def answer(self) -> None:
        """Serve HTTP."""
        self._http = HttpServer(self._app, f"127.0.0.1:{self._url_port}")
        await self._http.start()
        self._url_port = self._http.port

    async def fall_silent(self) -> None:
        """Serve no HTTP; events go on."""
        if self._http is not None:
            await self._http.stop(drain_s=0.01)
            self._http = None

    async def kill(self) -> None:
        await self.fall_silent()
        if self._replay is not None:
            self._replay.cancel()
            with suppress(asyncio.CancelledError):
                await self._replay
        if self._publisher is not None:
            self._publisher.close()

    def publish(self, *events: EngineEvent) -> None:
        assert self._publisher is not None
        self._publisher.publish(encode_batch(events, float(self._publisher.sequence), 0))

    def skip(self, *events: EngineEvent) -> None:
        """A batch that the live stream drops: only the replay has it."""
        assert self._publisher is not None
        payload = encode_batch(events, float(self._publisher.sequence), 0)
        self._publisher._ring.append((self._publisher.sequence.to_bytes(8, "big"), payload))
        self._publisher.sequence += 1

    async def _app(self, scope: MutableMapping[str, Any], _receive: Any, send: Any) -> None:
        answers = {"/v1/loads": {"loads": [self.loads]}, "/server_info": self.info}
        answer = answers.get(scope["path"])
        body = orjson.dumps(answer)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200 if answer else 404, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class NaiveUnit:
    """A maintenance unit of one worker: keeps what it is told in a dictionary."""

    def __init__(self, lease_ms: int = 600) -> None:
        self.lease_ms = lease_ms
        self.held: dict[int, int] = {}
        self.hellos: list[AgentHello] = []
        self.renewals: list[Renewal] = []
        self.edits = 0
        self.reports = 0
        self.refusal: Refusal | None = None
        self._lost = False
        """Nothing of what was held is left, and no full report has begun since."""
        self.outbox: asyncio.Queue[UnitToAgent | None] = asyncio.Queue()
        """What to say, None to end the stream."""

    def lose_everything(self) -> None:
        """As after a restart: renewals on their way describe what is gone until the report comes."""
        self.held.clear()
        self._lost = True
        self.outbox.put_nowait(ReportRequest("a test"))

    def hang_up(self) -> None:
        self.outbox.put_nowait(None)

    async def report(
        self, messages: AsyncIterator[AgentToUnit], context: Context
    ) -> AsyncIterator[UnitToAgent]:
        hello = await anext(messages)
        assert isinstance(hello, AgentHello)
        self.hellos.append(hello)
        if self.refusal is not None:
            yield self.refusal
            return
        yield Welcome(1, self.lease_ms, full_report_wanted=not self._agrees(hello.holdings))
        self.outbox = asyncio.Queue()
        taking = asyncio.create_task(self._take(messages, hello.holdings.sequence))
        try:
            while (message := await self.outbox.get()) is not None:
                yield message
        finally:
            taking.cancel()

    async def subscribe(self, messages: Any, context: Context) -> None:
        raise NotImplementedError

    async def _take(self, messages: AsyncIterator[AgentToUnit], sequence: int) -> None:
        mid_report = False
        async for message in messages:
            if isinstance(message, Renewal):
                assert message.sequence == sequence
                assert mid_report or self._lost or self._agrees(message), (
                    "a renewal describes what was sent before it"
                )
                self.renewals.append(message)
                continue
            assert isinstance(message, Edits | FullReport)
            assert message.sequence == sequence + 1
            sequence += 1
            if isinstance(message, FullReport):
                mid_report = not message.last
                if message.first:
                    self.held.clear()
                    self._lost = False
                    self.reports += 1
            self.edits += isinstance(message, Edits)
            self.held.update(zip(message.keys.tolist(), message.tiers.tolist(), strict=True))
            self.held = {key: tier for key, tier in self.held.items() if tier}
            self.outbox.put_nowait(Acknowledgement(sequence))

    def _agrees(self, told: Renewal) -> bool:
        keys = np.array(list(self.held), dtype=np.uint64)
        tiers = np.array(list(self.held.values()), dtype=np.uint8)
        return (told.holdings, told.holdings_digest) == (len(keys), holdings_digest(keys, tiers))


class ListeningEdge:
    """An edge that remembers the loads it is told."""

    def __init__(self) -> None:
        self.handshakes: list[Handshake | None] = []
        self.loads: list[WorkerLoad] = []
        self.sequences: list[int] = []

    async def report_load(
        self, messages: AsyncIterator[AgentLoad], context: Context
    ) -> AsyncIterator[LoadReply]:
        async for message in messages:
            if message.handshake is not None:
                self.handshakes.append(message.handshake)
                yield Acknowledgement(message.sequence)
            self.sequences.append(message.sequence)
            self.loads.append(message.load)

    async def exchange_load(
        self, messages: AsyncIterator[RegionBroadcast], context: Context
    ) -> AsyncIterator[LoadReply]:
        raise NotImplementedError
        yield


@asynccontextmanager
async def served_unit(unit: NaiveUnit, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Serve a unit; yields its address."""
    server, port = await serve_grpc(lambda s: register_index_maintenance(s, unit), address)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def served_edge(edge: ListeningEdge) -> AsyncIterator[str]:
    """Serve an edge's load exchange; yields its address."""
    server, port = await serve_grpc(lambda s: register_load_exchange(s, edge), "127.0.0.1:0")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def stored(
    tokens: list[int], *, first_hash: int = 1, parent: int | None = None, medium: str = "GPU"
) -> BlockStored:
    """A chain of blocks, with hashes counted from `first_hash`."""
    count = len(tokens) // BLOCK
    hashes = tuple(range(first_hash, first_hash + count))
    return BlockStored(hashes, parent, np.array(tokens, dtype=np.int32), BLOCK, medium)


def keys_of(plan: Plan, tokens: list[int]) -> set[int]:
    """Keys at every registered length of a prompt."""
    keys = prefix_keys(
        namespace(plan.model, SALT), np.array(tokens, dtype=np.int32), registered_lengths(plan)
    )
    return set(keys.tolist())
