"""The stream from one worker to one maintenance unit: reconnects, writes what there is, renews the lease."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import grpc.aio

from kvcompass.errors import LayoutMismatchError, ProtocolError
from kvcompass.roles.backoff import refused_us
from kvcompass.roles.messages import AgentToUnit, UnitToAgent
from kvcompass.roles.unit_report import UnitReport
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger
from services.runtime.new_backoff import new_backoff
from services.runtime.sparse_log import SparseLog
from services.runtime.stream_end import reason_of
from services.wire import rpc
from services.worker_agent.settings import StreamSettings

_Call = grpc.aio.StreamStreamCall[AgentToUnit, UnitToAgent]


class ReportStream:
    """Drives one `UnitReport`. `wake` it when the agent changed."""

    def __init__(
        self,
        report: UnitReport,
        channel: grpc.aio.Channel,
        *,
        unit_id: str,
        worker_id: str,
        vouches: Callable[[], bool],
        may_renew: Callable[[], bool],
        settings: StreamSettings,
    ) -> None:
        """`vouches` and `may_renew` are the agent's.

        The channel is shared, and closed by its owner.
        """
        self.report = report
        self.unit_id = unit_id
        self._channel = channel
        self._worker_id = worker_id
        self._vouches = vouches
        self._may_renew = may_renew
        self._answer_s = settings.answer_timeout_ms / 1_000
        self._write_s = settings.write_timeout_ms / 1_000
        self._changed = asyncio.Event()
        self._log = get_logger("report_stream").bind(worker=worker_id, unit=unit_id)
        self._sparse_log = SparseLog(self._log)
        self.problem = "not connected yet"
        """Why the unit does not know the worker; empty while the stream is open."""
        self.connects = 0
        """Streams opened. Monotonic."""

    def wake(self) -> None:
        """Look again at what there is to send."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        backoff = new_backoff()
        while True:
            while not self._vouches():
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._stream()
                self.problem = "the agent began a new epoch"
                continue
            except LayoutMismatchError as error:
                self._failed(f"refused: {error.field}: {error}")
                pause_us = backoff.next_us(least_us=refused_us(error.field))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, ProtocolError, TimeoutError) as error:
                if self.report.welcomed:
                    backoff.reset()
                self._failed(reason_of(error))
                pause_us = backoff.next_us()
            finally:
                self.report.disconnected()
            await asyncio.sleep(pause_us / 1e6)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warning("no report stream", reason=problem)
        self.problem = problem

    async def _stream(self) -> None:
        """Follow one stream until the agent's epoch changes; raise when it breaks or is refused."""
        call = rpc.report(self._channel)()
        self.connects += 1
        reading: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(self._answer_s):
                await call.write(self.report.connect())
                await self._read_one(call)
            if not self.report.welcomed:
                raise ProtocolError("the unit's first message is no welcome", field="welcome")
            self.problem = ""
            self._sparse_log.info("welcomed", lease_ms=self.report.lease_ms)
            reading = asyncio.create_task(self._read(call), name=f"answers of {self.unit_id}")
            reading.add_done_callback(lambda _: self.wake())
            await self._write(call, reading)
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _write(self, call: _Call, reading: asyncio.Task[None]) -> None:
        while not self.report.outdated:
            if reading.done():
                reading.result()
                raise ProtocolError("the unit ended the stream", field="stream")
            self._changed.clear()
            if now_us() >= self.report.renewal_at_us:
                self.report.tend_lease(now_us(), renewable=self._may_renew())
            message = self.report.take()
            if message is not None:
                async with asyncio.timeout(self._write_s):
                    await call.write(message)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, self.report.renewal_at_us - now_us()) / 1e6):
                    await self._changed.wait()

    async def _read(self, call: _Call) -> None:
        while await self._read_one(call):
            self.wake()

    async def _read_one(self, call: _Call) -> bool:
        """Take in one message; False when the unit has ended the stream."""
        message = await rpc.read(call)
        if message is not None:
            self.report.on_message(message)
        return message is not None
