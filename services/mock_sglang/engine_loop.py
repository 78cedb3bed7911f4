"""Runs the engine model in real time: one timer, re-armed at absolute deadlines."""

import asyncio
import time

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, EngineRequest, Rejection
from kvcompass.engine_model.engine import ModelLoad
from services.mock_sglang.kv_events import encode_batch
from services.mock_sglang.publisher import EventPublisher


class Flight:
    """A request under way, as its response sees it. Progress coalesces when the reader is slow."""

    __slots__ = ("_changed", "aborted", "cached_tokens", "finished", "generated")

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.generated = 0
        self.cached_tokens = 0
        self.finished = False
        self.aborted = False

    async def progress(self) -> int:
        """Waits for news; returns how many answer tokens exist now."""
        await self._changed.wait()
        self._changed.clear()
        return self.generated

    def wake(self) -> None:
        """Let the reader look."""
        self._changed.set()


class EngineLoop:
    """Owns the engine. Deadlines are computed from the start of the clock, so they do not drift."""

    def __init__(
        self, engine: Engine, publisher: EventPublisher | None, time_scale: float, stream_interval: int
    ) -> None:
        self._engine = engine
        self._publisher = publisher
        self._seconds_per_us = time_scale / 1e6
        self._interval = stream_interval
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: int | None = None
        self._flights: dict[str, Flight] = {}
        self._settle()

    def submit(self, request: EngineRequest) -> Flight | Rejection:
        """Queue a request."""
        rejection = self._engine.submit(request, self._now_us())
        if rejection is not None:
            self._settle()
            return rejection
        flight = Flight()
        self._flights[request.id] = flight
        self._settle()
        return flight

    def abort(self, request_id: str) -> None:
        """End a request and free what it holds; its reader is told. Unknown ids are ignored."""
        now_us = self._now_us()
        self._engine.advance(now_us)
        self._settle()
        flight = self._flights.pop(request_id, None)
        if flight is None:
            return
        self._engine.abort(request_id, now_us)
        flight.aborted = True
        flight.wake()
        self._settle()

    def abort_all(self) -> None:
        """End every request."""
        for request_id in list(self._flights):
            self.abort(request_id)

    def flush(self) -> bool:
        """Empty the cache; False while anything runs or waits."""
        flushed = self._engine.flush(self._now_us())
        self._settle()
        return flushed

    def load(self) -> ModelLoad:
        """The engine's load now."""
        load = self._engine.load(self._now_us())
        self._settle()
        return load

    def close(self) -> None:
        """Stop the clock."""
        self.abort_all()
        if self._timer is not None:
            self._timer.cancel()

    def _now_us(self) -> int:
        return int((self._loop.time() - self._origin) / self._seconds_per_us)

    def _on_timer(self) -> None:
        self._timer = None
        self._armed_for = None
        self._engine.advance(self._now_us())
        self._settle()

    def _publish(self, batches: list[list[EngineEvent]]) -> None:
        if self._publisher is None:
            return
        for batch in batches:
            self._publisher.publish(encode_batch(batch, time.time()))

    def _settle(self) -> None:
        """Pass on what happened and arm the timer for what comes next."""
        for step in self._engine.take_progress():
            flight = self._flights[step.request_id]
            flight.generated = step.generated
            flight.cached_tokens = step.cached_tokens
            flight.finished = step.finished
            if step.finished:
                del self._flights[step.request_id]
            if step.finished or step.generated == 1 or step.generated % self._interval == 0:
                flight.wake()
        if batches := self._engine.take_batches():
            # After the readers just woken: encoding 1,000 events takes milliseconds of a first token's time.
            self._loop.call_soon(self._publish, batches)
        due = self._engine.next_deadline_us()
        if due == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = due
        if due is not None:
            # One microsecond late at most, so that rounding never wakes the loop before the deadline.
            at = self._origin + (due + 1) * self._seconds_per_us
            self._timer = self._loop.call_at(at, self._on_timer)
