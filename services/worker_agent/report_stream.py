"""The stream from one worker to one maintenance unit: reconnects, writes what there is, renews the lease."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

import grpc.aio

from kvcompass.errors import LayoutMismatchError, ProtocolError
from kvcompass.roles.messages import AgentToUnit, UnitToAgent
from kvcompass.roles.unit_report import UnitReport
from services.runtime.logs import get_logger
from services.wire import rpc
from services.worker_agent.settings import StreamSettings

_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 2.0
"""A healed partition is noticed within this time."""
_REFUSED_DELAY_S: Final = 5.0
"""A refusal lasts until somebody changes a plan."""
_RENEWALS_A_LEASE: Final = 3

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
        lease_ms: int,
        vouches: Callable[[], bool],
        settings: StreamSettings,
    ) -> None:
        """`lease_ms` is the plan's. The channel is shared, and closed by its owner."""
        self.report = report
        self.unit_id = unit_id
        self._channel = channel
        self._worker_id = worker_id
        self._vouches = vouches
        self._renewal_s = lease_ms / 1_000 / _RENEWALS_A_LEASE
        self._answer_s = settings.answer_timeout_ms / 1_000
        self._write_s = settings.write_timeout_ms / 1_000
        self._changed = asyncio.Event()
        self._log = get_logger("report_stream").bind(worker=worker_id, unit=unit_id)
        self.problem = "not connected yet"
        """Why the unit does not know the worker; empty while the stream is open."""
        self.connects = 0
        """Streams opened. Monotonic."""

    def wake(self) -> None:
        """Look again at what there is to send."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        delay_s = _FIRST_DELAY_S
        while True:
            while not self._vouches():
                self._changed.clear()
                await self._changed.wait()
            pause_s = delay_s
            try:
                await self._stream()
                self.problem = "the agent began a new epoch"
                continue
            except LayoutMismatchError as error:
                self.problem = f"refused: {error.field}: {error}"
                self._log.error("refused", field=error.field, reason=str(error))
                pause_s = _REFUSED_DELAY_S
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, ProtocolError, TimeoutError) as error:
                self.problem = _why(error)
                self._log.info("report stream lost", reason=self.problem)
                if self.report.welcomed:
                    pause_s = delay_s = _FIRST_DELAY_S
            finally:
                self.report.disconnected()
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311

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
            self._log.info("welcomed", lease_ms=self.report.lease_ms)
            reading = asyncio.create_task(self._read(call), name=f"answers of {self.unit_id}")
            reading.add_done_callback(lambda _: self.wake())
            await self._write(call, reading)
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _write(self, call: _Call, reading: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        renewal_s = min(self._renewal_s, self.report.lease_ms / 1_000 / _RENEWALS_A_LEASE or self._renewal_s)
        renew_at = loop.time()
        while not self.report.outdated:
            if reading.done():
                reading.result()
                raise ProtocolError("the unit ended the stream", field="stream")
            self._changed.clear()
            if loop.time() >= renew_at:
                self.report.renew()
                renew_at = loop.time() + renewal_s
            while (message := self.report.take()) is not None:
                async with asyncio.timeout(self._write_s):
                    await call.write(message)
            with_timeout = max(0.0, renew_at - loop.time())
            try:
                async with asyncio.timeout(with_timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _read(self, call: _Call) -> None:
        while await self._read_one(call):
            self.wake()

    async def _read_one(self, call: _Call) -> bool:
        """Take in one message; False when the unit has ended the stream."""
        message = await rpc.read(call)
        if message is not None:
            self.report.on_message(message)
        return message is not None


def _why(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
