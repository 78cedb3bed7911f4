"""A maintenance unit on the clock, driven as `services.maintenance.service` drives it."""

from typing import Final, Protocol

from kvcompass.index import ShardTables
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    Refusal,
    ReportRequest,
    SubscribeRequest,
    UnitToAgent,
    UnitToEdge,
)
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.worker_source import AgentSession
from simulator.errors import SimulationError
from simulator.place import Place
from simulator.product import sizes
from simulator.product.periods import BUSY_TICK_US, FLUSH_US, STALL_US, TICK_US

_UNKNOWN: Final = (-1, None)
"""Attempt and session of a stream that this process has not heard of."""


class Subscriber(Protocol):
    """Who is sent what a unit has for a subscription."""

    def deliver(self, message: UnitToEdge) -> bool:
        """Send the next message; False when the stream is broken."""


class EdgeStream(Subscriber, Protocol):
    """A stream that is opened from afar, again and again."""

    sent_attempt: int
    """The newest that the unit has heard of."""


class AgentStream(Protocol):
    """A Report stream, as the unit meets it."""

    @property
    def region(self) -> int:
        """Where whoever opened it stands."""

    def answered(self, attempt: int, message: UnitToAgent) -> None:
        """The unit says something."""

    def hung_up(self, attempt: int) -> None:
        """The connection broke."""


class UnitNode:
    """Owns a unit and its tables. Everything here runs in its region."""

    def __init__(
        self,
        site: Place,
        unit: MaintenanceUnit,
        tables: ShardTables,
        region: int,
        *,
        plans_change: bool = False,
    ) -> None:
        """`plans_change`: that it refuses an edge is no error of the simulation's."""
        self.unit = unit
        self.tables = tables
        self.region: Final = region
        self._site = site
        self._plans_change = plans_change
        self._sessions: dict[AgentStream, tuple[int, AgentSession | None]] = {}
        """Of each stream's newest attempt."""
        self._subscribers: dict[Subscriber, Subscription] = {}
        self._flush_due = False
        self._watermark_set = False

    def start(self) -> None:
        """Tick for ever."""
        self._tick(self._site.now_us)

    def restart(self, unit: MaintenanceUnit, tables: ShardTables) -> None:
        """Another process stands at this address. It knows of no stream; the last one's timers are gone."""
        self.unit = unit
        self.tables = tables
        self._sessions.clear()
        self._subscribers.clear()
        self._flush_due = False
        self._watermark_set = False
        self.start()

    # --- agents -----------------------------------------------------------------------------------

    def register(self, stream: AgentStream, attempt: int, hello: AgentHello) -> UnitToAgent:
        """A Report stream begins; it takes the place of the worker's last. Returns the unit's first word."""
        self._sessions[stream] = attempt, None
        opened = self.unit.agent_connected(hello, self._site.now_us)
        self.changed()
        if isinstance(opened, Refusal):
            return opened
        session, welcome = opened
        self._sessions[stream] = attempt, session
        session.turn.on_end(lambda: self._site.after(0, self._over, stream, attempt, session))
        return welcome

    def dialled(self, stream: AgentStream, attempt: int, hello: AgentHello) -> None:
        """A Report stream begins, and the answer is sent. A hello that comes late or again is passed over."""
        if attempt > self._newest(stream):
            self._answer(stream, attempt, self.register(stream, attempt, hello))

    def reported(self, stream: AgentStream, attempt: int, message: AgentToUnit) -> None:
        """A Report stream's next message. One of a stream that is not open is answered by a reset."""
        newest, session = self._sessions.get(stream, _UNKNOWN)
        if attempt < newest:
            return
        if session is None or attempt > newest:
            self._site.send_reliably(stream.region, stream.hung_up, 0, (attempt,))
            return
        unit, now_us = self.unit, self._site.now_us
        for answer in unit.on_agent_message(session, message, now_us):
            if isinstance(answer, Acknowledgement):
                # It changes nothing but a gauge of the agent's.
                self._site.count(self.region, stream.region, sizes.ACKNOWLEDGEMENT)
            else:
                self._answer(stream, attempt, answer)
                if isinstance(answer, Refusal):
                    self.agent_hung_up(stream, attempt)
                    return
        while unit.work(session, now_us):
            pass
        self.changed()

    def agent_hung_up(self, stream: AgentStream, attempt: int) -> None:
        """A Report stream has ended."""
        newest, session = self._sessions.get(stream, _UNKNOWN)
        if attempt >= newest:
            self._sessions[stream] = attempt, None
            if session is not None:
                self.unit.agent_disconnected(session)

    def _over(self, stream: AgentStream, attempt: int, session: AgentSession) -> None:
        """Another has the stream's turn: it is told so and ended."""
        if self._newest(stream) == attempt:
            self._answer(stream, attempt, self.unit.why_over(session))
            self.agent_hung_up(stream, attempt)

    def _newest(self, stream: AgentStream) -> int:
        return self._sessions.get(stream, _UNKNOWN)[0]

    def _answer(self, stream: AgentStream, attempt: int, answer: UnitToAgent) -> None:
        size = sizes.ACKNOWLEDGEMENT
        if isinstance(answer, ReportRequest):
            size += len(answer.reason)
        self._site.send_reliably(stream.region, stream.answered, size, (attempt, answer))

    # --- edges ------------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest, subscriber: Subscriber) -> None:
        """A Subscribe stream begins; it takes the place of the subscriber's last. It is sent what there is.

        Raises:
            SimulationError: The unit refuses it, and plans do not change.
        """
        self.unsubscribe(subscriber)
        opened = self.unit.subscribe(request, self._site.now_us)
        if isinstance(opened, Refusal) and self._plans_change:
            subscriber.deliver(opened)
            return
        if isinstance(opened, Refusal):
            raise SimulationError(f"a unit refuses its edge: {opened.message}", field=opened.field)
        self._subscribers[subscriber] = opened
        self._feed()

    def hurry(self) -> None:
        """End what is under way at once: before the run begins there was time for it."""
        while self.unit.tick(self._site.now_us):
            self._feed()
        self._feed()

    def edge_dialled(self, stream: EdgeStream, attempt: int, request: SubscribeRequest) -> None:
        """A Subscribe stream begins. A request that comes late or again is passed over."""
        if attempt > stream.sent_attempt:
            stream.sent_attempt = attempt
            self.subscribe(request, stream)

    def edge_hung_up(self, stream: EdgeStream, attempt: int) -> None:
        """A Subscribe stream has ended."""
        if attempt >= stream.sent_attempt:
            stream.sent_attempt = attempt
            self.unsubscribe(stream)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """A Subscribe stream has ended."""
        subscription = self._subscribers.pop(subscriber, None)
        if subscription is not None:
            self.unit.unsubscribe(subscription)

    def acknowledged(self, stream: EdgeStream, attempt: int, acknowledgement: Acknowledgement) -> None:
        """A subscriber's view is exact up to a sequence."""
        subscription = self._subscribers.get(stream)
        if subscription is not None and attempt == stream.sent_attempt:
            self.unit.acknowledged(subscription, acknowledgement)

    # --- inside -----------------------------------------------------------------------------------

    def _tick(self, due_us: int) -> None:
        unit, now_us = self.unit, self._site.now_us
        if now_us - due_us > STALL_US:
            unit.stalled(now_us - due_us)
        leases_ended = unit.counters.leases_ended
        busy = unit.tick(now_us)
        if busy or unit.counters.leases_ended != leases_ended:
            self.changed()
        period_us = BUSY_TICK_US if busy else TICK_US
        self._site.after(period_us, self._tick, now_us + period_us)

    def changed(self) -> None:
        """There may be something to send."""
        if not self._flush_due and self._subscribers:
            self._flush_due = True
            self._site.after(FLUSH_US, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self._feed()

    def _feed(self) -> None:
        """Send each subscriber all there is, and see that the next watermark is not forgotten."""
        assert self._site.here == self.region, "a unit sends from where it stands"
        take, now_us = self.unit.take, self._site.now_us
        for subscriber, subscription in list(self._subscribers.items()):
            while batch := take(subscription, now_us):
                sent = all(subscriber.deliver(message) for message in batch)
                if not sent or isinstance(batch[-1], Refusal):
                    self.unsubscribe(subscriber)
                    break
        due_us = min((each.watermark_due_us for each in self._subscribers.values()), default=None)
        if due_us is not None and not self._watermark_set:
            self._watermark_set = True
            self._site.after(max(TICK_US, due_us - now_us), self._watermark)

    def _watermark(self) -> None:
        self._watermark_set = False
        self.changed()
