"""The stream of one worker's load to one edge of its region: always the newest, never a queue."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn

import grpc.aio

from kvcompass.errors import LayoutMismatchError, ProtocolError
from kvcompass.fleet.load import WorkerLoad
from kvcompass.roles.backoff import refused_us
from kvcompass.roles.messages import (
    PREFILL_ANSWERS_MOST,
    PROTOCOL_VERSION,
    Acknowledgement,
    AgentLoad,
    Handshake,
    LoadReply,
    PrefillAnswer,
    Refusal,
    ReplicaPrefill,
)
from services.runtime.logs import get_logger
from services.runtime.new_backoff import new_backoff
from services.runtime.stream_end import reason_of
from services.wire import rpc
from services.worker_agent.settings import StreamSettings


class LoadStream:
    """Sends what `load` returns each time it is woken; wakes during a write are merged."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        edge_id: str,
        worker_id: str,
        epoch: int,
        layout: Mapping[str, str],
        plan_version: int,
        load: Callable[[], WorkerLoad | None],
        settings: StreamSettings,
        on_prefill: Callable[[str, ReplicaPrefill], None] | None = None,
    ) -> None:
        """The channel is shared, and closed by its owner. `load` is asked when a message can be sent.

        `on_prefill` is given the edge's id and what it asks for; None: it is not asked for replicas.
        """
        self.edge_id = edge_id
        self._channel = channel
        self._load = load
        self._on_prefill = on_prefill
        self._answers: deque[PrefillAnswer] = deque()
        self._epoch = epoch
        self._sequence = 0
        self._handshake = Handshake(worker_id, epoch, PROTOCOL_VERSION, plan_version, layout)
        self._answer_s = settings.answer_timeout_ms / 1_000
        self._write_s = settings.write_timeout_ms / 1_000
        self._changed = asyncio.Event()
        self._log = get_logger("load_stream").bind(worker=worker_id, edge=edge_id)
        self.problem = "not connected yet"
        """Why the edge does not know the load; empty while the stream is open."""
        self.connects = 0
        self.sent = 0
        """Streams opened and loads sent. Monotonic."""
        self.dropped_answers = 0
        """Answers that an edge which took none was not told. Monotonic."""

    def apply_plan(self, plan_version: int) -> None:
        """What the handshake of the next stream claims."""
        self._handshake = replace(self._handshake, plan_version=plan_version)

    def wake(self) -> None:
        """There is a new load."""
        self._changed.set()

    def answer(self, answer: PrefillAnswer) -> None:
        """Tell the edge what became of a prefill, with the next load, once: an edge that is not told by then
        asks elsewhere. Too many drop the oldest."""
        if len(self._answers) == PREFILL_ANSWERS_MOST:
            self._answers.popleft()
            self.dropped_answers += 1
        self._answers.append(answer)
        self.wake()

    async def run(self) -> None:
        """Run until cancelled."""
        backoff = new_backoff()
        while True:
            try:
                await self._stream()
            except LayoutMismatchError as error:
                self._failed(f"refused: {error.field}: {error}")
                pause_us = backoff.next_us(least_us=refused_us(error.field))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, ProtocolError, TimeoutError) as error:
                if not self.problem:
                    backoff.reset()
                self._failed(reason_of(error))
                pause_us = backoff.next_us()
            await asyncio.sleep(pause_us / 1e6)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warning("no load stream", reason=problem)
        self.problem = problem

    async def _stream(self) -> NoReturn:
        """Send loads until the stream breaks or is refused."""
        first = await self._next()
        call = rpc.report_load(self._channel)()
        self.connects += 1
        reading: asyncio.Task[NoReturn] | None = None
        try:
            async with asyncio.timeout(self._answer_s):
                await call.write(self._message(first, self._handshake))
                if not isinstance(await self._read_one(call), Acknowledgement):
                    raise ProtocolError("the edge's first message is no acknowledgement", field="message")
            self.problem = ""
            reading = asyncio.create_task(self._read(call), name=f"answers of {self.edge_id}")
            while True:
                load = await self._next()
                if reading.done():
                    reading.result()
                async with asyncio.timeout(self._write_s):
                    await call.write(self._message(load, None))
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _next(self) -> WorkerLoad:
        while True:
            await self._changed.wait()
            self._changed.clear()
            load = self._load()
            if load is not None:
                return load

    def _message(self, load: WorkerLoad, handshake: Handshake | None) -> AgentLoad:
        self._sequence += 1
        self.sent += 1
        takes_prefills = handshake is not None and self._on_prefill is not None
        answers = tuple(self._answers)
        self._answers.clear()
        return AgentLoad(handshake, self._epoch, self._sequence, load, takes_prefills, answers)

    async def _read(self, call: grpc.aio.StreamStreamCall[AgentLoad, LoadReply]) -> NoReturn:
        while True:
            reply = await self._read_one(call)
            if isinstance(reply, ReplicaPrefill):
                if self._on_prefill is None:
                    raise ProtocolError("the edge asks for a replica, unasked", field="replica_prefill")
                self._on_prefill(self.edge_id, reply)

    async def _read_one(
        self, call: grpc.aio.StreamStreamCall[AgentLoad, LoadReply]
    ) -> Acknowledgement | ReplicaPrefill:
        reply = await rpc.read(call)
        if reply is None:
            raise ProtocolError("the edge ended the stream", field="stream")
        if isinstance(reply, Refusal):
            raise LayoutMismatchError(reply.message, field=reply.field)
        return reply
