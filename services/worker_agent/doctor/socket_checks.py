"""Whether an engine's sockets answer: its events, its replay, its load."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Final

import zmq.asyncio

from kvcompass.engine_events import BlockStored
from kvcompass.engine_facts import EngineFacts
from kvcompass.roles.engine_fit import events_flag
from kvcompass.self_test.stored_chains import StoredChains
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.worker_agent.doctor.check import Check, fail, ok, warn
from services.worker_agent.doctor.patient import Patient
from services.worker_agent.engine_client import EngineClient, EngineError
from services.worker_agent.event_decoder import BatchError, EventDecoder
from services.worker_agent.event_source import EventSourceError, LiveEvents, replay
from services.worker_agent.load_sources.reader import LoadReader
from services.worker_agent.load_sources.source import SourceKind

_SOCKET_S: Final = 3.0
"""For a socket to answer."""
_QUIET_MS: Final = 1_000
_PUBLISHED_S: Final = 2.5
"""For a load to come by itself."""
_LOOK_S: Final = 0.1


@dataclass(slots=True)
class Heard:
    """What came while the doctor listened."""

    chains: StoredChains = field(default_factory=StoredChains)
    decoder: EventDecoder = field(default_factory=EventDecoder)
    batches: int = 0
    broken: int = 0
    """Payloads that are no batch."""
    _any_stored: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def unread(self) -> int:
        """Events and batches that were not understood."""
        counters = self.decoder.counters
        return self.broken + counters.malformed_events + counters.unknown_events

    def take(self, payload: bytes) -> None:
        """One batch came."""
        self.batches += 1
        try:
            events = self.decoder.decode(payload)
        except BatchError:
            self.broken += 1
            return
        self.chains.hear(events)
        if any(isinstance(event, BlockStored) for event in events):
            self._any_stored.set()

    async def any_stored(self, within_s: float) -> bool:
        """Wait for the first block that is told."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._any_stored.wait()
        return self._any_stored.is_set()


@asynccontextmanager
async def listening(
    context: zmq.asyncio.Context, endpoint: str, facts: EngineFacts, patient: Patient
) -> AsyncIterator[tuple[Check, Heard | None]]:
    """Listens to the events while it is open; yields what came of connecting, and what is heard if it did."""
    heard = Heard()
    async with LiveEvents(context, endpoint) as live:
        try:
            await live.connect(_SOCKET_S)
        except EventSourceError as error:
            yield fail("event socket", str(error), events_flag(facts.engine, patient.worker)), None
            return
        reading = asyncio.create_task(_read(live, heard), name="doctor hears")
        try:
            yield ok("event socket", f"{endpoint} accepts"), heard
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading


async def _read(live: LiveEvents, heard: Heard) -> None:
    while True:
        batch = await live.next(_QUIET_MS)
        if batch is not None:
            heard.take(batch[1])


async def replay_check(context: zmq.asyncio.Context, endpoint: str, *, told: bool) -> Check:
    """Asks for the first batch of all. `told`: the engine itself says that it replays there."""
    try:
        async with aclosing(replay(context, endpoint, 0, _SOCKET_S)) as batches:
            first = await anext(batches, None)
    except EventSourceError as error:
        fix = "restart it" if told else "the port of replay_endpoint, or none: then what is lost stays lost"
        return fail("replay", str(error), fix)
    if first is None or first[0] == 0:
        return ok("replay", f"{endpoint} answers from the first batch on")
    return warn(
        "replay",
        f"batches before {first[0]} are gone: an agent that starts now knows less than is held (PARTIAL)",
        "start the agent with the engine, or empty its cache once: POST /flush_cache",
    )


async def load_check(
    client: EngineClient, context: zmq.asyncio.Context, patient: Patient, dialer: Dialer
) -> Check:
    """Asks for the load as an agent does."""
    reader = LoadReader(
        client,
        context,
        worker_id=patient.worker.id,
        url=patient.worker.url,
        dial=dialer.url,
        rank=patient.worker.dp_rank,
        settings=patient.settings,
        now_us=now_us,
    )
    with closing(reader):
        try:
            load = (await reader.read(0)).load
        except EngineError as error:
            if error.field != "load":  # a route that is there failed
                return fail("load", str(error), "see the engine's log, or run it again when it is less busy")
            return fail("load", str(error), "--enable-metrics, or an engine with /v1/loads (SGLang 0.5.10)")
        if reader.publishes_at and not await _is_published(reader):
            return warn(
                "load",
                f"it says that it publishes its load at {reader.publishes_at}, and nothing came from there: "
                "it is asked for",
                "open that port to the agent, or see the engine's log for why it is not bound",
            )
        said = f"{reader.kind}: {load.running} running, {load.waiting} waiting"
        return ok("load", f"{said}; it does not tell {', '.join(reader.lacks)}" if reader.lacks else said)


async def _is_published(reader: LoadReader) -> bool:
    """Whether a load comes by itself. An idle engine repeats its own each second."""
    with suppress(TimeoutError, EngineError):
        async with asyncio.timeout(_PUBLISHED_S):
            while reader.kind is not SourceKind.LOAD_SOCKET:
                await asyncio.sleep(_LOOK_S)
                await reader.read(0)
    return reader.kind is SourceKind.LOAD_SOCKET
