"""Runs the engine model in real time: one timer, re-armed at absolute deadlines."""

import asyncio
from collections.abc import Callable

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, EngineRequest, EvictionPolicy, ModelLoad, Rejection
from services.mock_sglang.errors import EngineError, aborted


class Flight:
    """A request under way, as its response sees it. Progress coalesces when the reader is slow."""

    __slots__ = ("_changed", "aborted", "cached_tokens", "finished", "generated", "host_tokens")

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.generated = 0
        self.cached_tokens = 0
        self.host_tokens = 0
        """Of the cached tokens, those that were loaded back from the host tier."""
        self.finished = False
        self.aborted: EngineError | None = None
        """Why it ended before its end."""

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
        self,
        engine: Engine,
        publish: Callable[[list[list[EngineEvent]]], None],
        time_scale: float,
        stream_interval: int,
    ) -> None:
        """`publish` is given batches of events, each to be published as one."""
        self._engine = engine
        self._publish = publish
        self._seconds_per_us = time_scale / 1e6
        self._interval = stream_interval
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._stopped_at: float | None = None
        """Set while model time stands still."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: int | None = None
        self._flights: dict[str, Flight] = {}
        self.finished_requests = 0
        """Answered to their end since the engine started."""
        self._settle()

    @property
    def resident_blocks(self) -> int:
        """Blocks in VRAM that a later request may reuse."""
        return self._engine.cache.resident_blocks

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

    def abort(self, request_id: str, reason: EngineError | None = None) -> None:
        """End a request and free what it holds; its reader is told. Unknown ids are ignored."""
        now_us = self._now_us()
        self._engine.advance(now_us)
        self._settle()
        flight = self._flights.pop(request_id, None)
        if flight is None:
            return
        self._engine.abort(request_id, now_us)
        flight.aborted = reason or aborted()
        flight.wake()
        self._settle()

    def abort_all(self, reason: EngineError | None = None) -> None:
        """End every request."""
        for request_id in list(self._flights):
            self.abort(request_id, reason)

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

    def replace(self, engine: Engine) -> None:
        """Go on with another engine, whose model time begins now. Requests under way must have ended."""
        assert not self._flights
        self._engine = engine
        self.finished_requests = 0
        self._origin = self._loop.time() if self._stopped_at is None else self._stopped_at
        self._settle()

    def stand_still(self, still: bool) -> None:
        """Stop model time, or let it go on from where it stopped. While it stands nothing is published."""
        if still and self._stopped_at is None:
            self._stopped_at = self._loop.time()
            self._rearm()
        elif not still and self._stopped_at is not None:
            self._origin += self._loop.time() - self._stopped_at
            self._stopped_at = None
            self._settle()

    def set_slowdown(self, factor: float) -> None:
        """What starts from now on takes so many times as long."""
        self._engine.set_slowdown(factor, self._now_us())
        self._settle()

    def set_eviction(self, policy: EvictionPolicy) -> None:
        """Evict by another policy from now on."""
        self._engine.set_eviction(policy, self._now_us())
        self._settle()

    def close(self) -> None:
        """Stop the clock."""
        self.abort_all()
        if self._timer is not None:
            self._timer.cancel()

    def _now_us(self) -> int:
        now = self._loop.time() if self._stopped_at is None else self._stopped_at
        return int((now - self._origin) / self._seconds_per_us)

    def _on_timer(self) -> None:
        self._timer = None
        self._armed_for = None
        self._engine.advance(self._now_us())
        self._settle()

    def _settle(self) -> None:
        """Pass on what happened and arm the timer for what comes next."""
        for step in self._engine.take_progress():
            flight = self._flights[step.request_id]
            flight.generated = step.generated
            flight.cached_tokens = step.cached_tokens
            flight.host_tokens = step.cached_host_tokens
            flight.finished = step.finished
            if step.finished:
                self.finished_requests += 1
                del self._flights[step.request_id]
            if step.finished or step.generated == 1 or step.generated % self._interval == 0:
                flight.wake()
        if self._stopped_at is None and (batches := self._engine.take_batches()):
            # After the readers just woken: encoding 1,000 events takes milliseconds of a first token's time.
            self._loop.call_soon(self._publish, batches)
        if self._engine.next_deadline_us() != self._armed_for:
            self._rearm()

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = None if self._stopped_at is not None else self._engine.next_deadline_us()
        if self._armed_for is not None:
            # One microsecond late at most, so that rounding never wakes the loop before the deadline.
            at = self._origin + (self._armed_for + 1) * self._seconds_per_us
            self._timer = self._loop.call_at(at, self._on_timer)
