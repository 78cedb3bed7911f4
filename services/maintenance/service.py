"""The two streams of a maintenance unit: agents report, edges subscribe."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from kvcompass.errors import ProtocolError, excerpt
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    EdgeToUnit,
    Refusal,
    UnitToAgent,
    Welcome,
)
from kvcompass.roles.worker_source import AgentSession
from services.maintenance.patch_loss import PatchLoss
from services.replication.pulse import Pulse
from services.replication.served_stream import Published, StreamRules, serve_subscription
from services.runtime.conversation import Answers, first_message, say_who_is_replaced, while_it_lasts
from services.runtime.logs import get_logger
from services.wire.rpc import Context

_TICK_S: Final = 0.05
"""Lease ends are noticed this late."""

_BUSY_TICK_S: Final = 0.001
"""While tables grow or are cleared: half the time goes to that, the rest to everybody else."""

_STALL_US: Final = 200_000
"""A tick this late means that this process did not run: a long edit, a suspended machine."""

_log = get_logger("maintenance")


class IndexService:
    """Drives one `MaintenanceUnit`. Everything runs on one event loop, so the unit needs no lock.

    Backpressure: an agent that does not read its answers is not read either; a subscriber that does not read
    stays where it is in the unit's log; neither for ever. gRPC's keepalive ends a connection that has gone
    silent, and a newer stream of the same sender the older one.
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
        self._rules = StreamRules(hello_timeout_s, flush_s)
        if loss is not None:
            self._rules = StreamRules(hello_timeout_s, flush_s, loss.takes)
        self._changed = Pulse()

    def changed(self) -> None:
        """Wakes the streams of all subscribers: there may be something to send."""
        self._changed.beat()

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
            live = self._unit.live_workers()
            busy = self._unit.tick(now_us)
            if self._unit.counters.leases_ended != before:
                ended = sorted(set(live) - set(self._unit.live_workers()))
                _log.warning("leases ended", workers=ended, sequence=self._unit.sequence)
            if busy or self._unit.counters.leases_ended != before:
                self._changed.beat()
            period_s = _BUSY_TICK_S if busy else _TICK_S
            await asyncio.sleep(period_s)

    async def report(self, messages: AsyncIterator[AgentToUnit], context: Context) -> None:
        """One worker's Report stream."""
        answers: Answers[UnitToAgent] = Answers(context.write, self._rules.write_timeout_s)
        hello = await first_message(messages, self._rules.hello_timeout_s)
        if not isinstance(hello, AgentHello):
            fault = Refusal("hello", "a Report stream begins with a hello")
            await answers.say(hello if isinstance(hello, Refusal) else fault)
            return
        opened = self._unit.agent_connected(hello, self._clock())
        self._changed.beat()
        if isinstance(opened, Refusal):
            worker = excerpt(hello.worker_id)
            _log.warning("agent refused", worker=worker, field=opened.field, message=opened.message)
            await answers.say(opened)
            return
        session, welcome = opened
        _log.info("agent connected", worker=hello.worker_id, report_wanted=welcome.full_report_wanted)
        say_who_is_replaced(session.turn, "report")
        try:
            async with while_it_lasts(session.turn):
                if await answers.say(welcome):
                    await self._hear(session, messages, answers)
            if session.turn.is_over:
                await answers.say(self._unit.why_over(session))
        except ProtocolError as error:
            _log.warning("agent sent nonsense", worker=session.worker_id, field=error.field, error=str(error))
            await answers.say(Refusal(error.field, str(error)))
        finally:
            self._unit.agent_disconnected(session)
            _log.info("agent disconnected", worker=session.worker_id)

    async def _hear(
        self,
        session: AgentSession,
        messages: AsyncIterator[AgentToUnit],
        answers: Answers[UnitToAgent],
    ) -> None:
        """All that an agent says, until it is refused or does not read its answers."""
        async for message in messages:
            for answer in self._unit.on_agent_message(session, message, self._clock()):
                if not isinstance(answer, Acknowledgement | Welcome):
                    _log.warning("agent answered", worker=session.worker_id, answer=repr(answer))
                if not await answers.say(answer) or isinstance(answer, Refusal):
                    return
            self._changed.beat()
            while self._unit.work(session, self._clock()):
                self._changed.beat()
                await asyncio.sleep(0)

    async def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: Context) -> None:
        """One edge's Subscribe stream."""
        published = Published(self._unit, self._changed)
        await serve_subscription(
            messages, lambda _request: published, context.write, self._clock, self._rules
        )
