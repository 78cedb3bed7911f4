"""The two streams of a maintenance unit: agents report, edges subscribe."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from kvcompass.errors import ProtocolError
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    EdgeToUnit,
    Refusal,
    SubscribeRequest,
    UnitToAgent,
    UnitToEdge,
)
from kvcompass.roles.subscription import Subscription
from services.maintenance.patch_loss import PatchLoss
from services.maintenance.pulse import Pulse
from services.runtime.logs import get_logger
from services.wire.rpc import Context

_TICK_S: Final = 0.05
"""Lease ends are noticed this late."""

_BUSY_TICK_S: Final = 0.001
"""While tables grow or are cleared: half the time goes to that, the rest to everybody else."""

_STALL_US: Final = 200_000
"""A tick this late means that this process did not run: a long edit, a suspended machine."""

_Message = TypeVar("_Message")

_log = get_logger("maintenance")


class IndexService:
    """Drives one `MaintenanceUnit`. Everything runs on one event loop, so the unit needs no lock.

    Backpressure: an agent that does not read its answers is not read either; a subscriber that does not read
    stays where it is in the unit's log. A connection that has gone silent is ended by gRPC's keepalive.
    """

    def __init__(
        self,
        unit: MaintenanceUnit,
        clock: Callable[[], int],
        *,
        flush_s: float,
        hello_timeout_s: float,
        loss: PatchLoss | None = None,
    ) -> None:
        """`loss`: what is lost on purpose, where the settings allow that."""
        self._unit = unit
        self._clock = clock
        self._flush_s = flush_s
        self._hello_timeout_s = hello_timeout_s
        self._loss = loss
        self._changed = Pulse()

    async def tick(self) -> None:
        """Ends leases and goes on with long changes of the tables, for ever."""
        ticked_us, period_s = self._clock(), _TICK_S
        while True:
            before = self._unit.counters.leases_ended
            now_us = self._clock()
            late_us = now_us - ticked_us - int(period_s * 1e6)
            if late_us > _STALL_US:
                _log.warning("the unit was stalled", late_ms=late_us // 1_000)
                self._unit.stalled(late_us)
            ticked_us = now_us
            busy = self._unit.tick(now_us)
            if self._unit.counters.leases_ended != before:
                _log.warning("leases ended", live=self._unit.live_workers(), sequence=self._unit.sequence)
            if busy or self._unit.counters.leases_ended != before:
                self._changed.beat()
            period_s = _BUSY_TICK_S if busy else _TICK_S
            await asyncio.sleep(period_s)

    async def report(
        self, messages: AsyncIterator[AgentToUnit], _context: Context
    ) -> AsyncIterator[UnitToAgent]:
        """One worker's Report stream."""
        hello = await self._first(messages)
        if not isinstance(hello, AgentHello):
            yield (
                hello
                if isinstance(hello, Refusal)
                else Refusal("hello", "a Report stream begins with a hello")
            )
            return
        opened = self._unit.agent_connected(hello, self._clock())
        self._changed.beat()
        if isinstance(opened, Refusal):
            _log.warning("agent refused", worker=hello.worker_id, field=opened.field, message=opened.message)
            yield opened
            return
        session, welcome = opened
        _log.info("agent connected", worker=hello.worker_id, report_wanted=welcome.full_report_wanted)
        try:
            yield welcome
            async for message in messages:
                for answer in self._unit.on_agent_message(session, message, self._clock()):
                    if not isinstance(answer, Acknowledgement):
                        _log.warning("agent answered", worker=session.worker_id, answer=repr(answer))
                    yield answer
                    if isinstance(answer, Refusal):
                        return
                self._changed.beat()
                while self._unit.work(session, self._clock()):
                    self._changed.beat()
                    await asyncio.sleep(0)
        except ProtocolError as error:
            _log.warning("agent sent nonsense", worker=session.worker_id, field=error.field, error=str(error))
            yield Refusal(error.field, str(error))
        finally:
            self._unit.agent_disconnected(session)
            _log.info("agent disconnected", worker=session.worker_id)

    async def subscribe(
        self, messages: AsyncIterator[EdgeToUnit], _context: Context
    ) -> AsyncIterator[UnitToEdge]:
        """One edge's Subscribe stream."""
        request = await self._first(messages)
        if not isinstance(request, SubscribeRequest):
            yield (
                request
                if isinstance(request, Refusal)
                else Refusal("subscribe", "a Subscribe stream begins with a subscribe request")
            )
            return
        opened = self._unit.subscribe(request, self._clock())
        subscriber = request.handshake.component_id
        if isinstance(opened, Refusal):
            _log.warning("edge refused", edge=subscriber, field=opened.field, message=opened.message)
            yield opened
            return
        _log.info("edge subscribed", edge=subscriber, replay_from=opened.cursor)
        acknowledgements = asyncio.create_task(self._acknowledgements(opened, messages))
        try:
            while True:
                batch = self._unit.take(opened, self._clock())
                for message in batch:
                    if self._loss is None or not self._loss.takes(message):
                        yield message
                if not batch:
                    await self._changed.wait(self._until_watermark_s(opened))
                    await asyncio.sleep(self._flush_s)
        finally:
            acknowledgements.cancel()
            self._unit.unsubscribe(opened)
            _log.info("edge unsubscribed", edge=subscriber)

    def _until_watermark_s(self, subscription: Subscription) -> float:
        return max(_TICK_S, (subscription.watermark_due_us - self._clock()) / 1e6)

    async def _acknowledgements(
        self, subscription: Subscription, messages: AsyncIterator[EdgeToUnit]
    ) -> None:
        try:
            async for message in messages:
                if isinstance(message, Acknowledgement):
                    self._unit.acknowledged(subscription, message)
        except ProtocolError as error:
            _log.warning("edge sent nonsense", edge=subscription.subscriber, error=str(error))

    async def _first(self, messages: AsyncIterator[_Message]) -> _Message | Refusal:
        try:
            async with asyncio.timeout(self._hello_timeout_s):
                return await anext(messages)
        except StopAsyncIteration:
            return Refusal("stream", "the stream ended before its first message")
        except TimeoutError:
            return Refusal("stream", f"no first message within {self._hello_timeout_s} s")
        except ProtocolError as error:
            return Refusal(error.field, str(error))
