"""Keeps an agent on its engine's events: facts, attach, replay, live batches, holes, restarts, silence."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import zmq
import zmq.asyncio

from kvcompass.engine_events import EngineNews, EventsLost
from kvcompass.roles.engine_feed import Order
from kvcompass.roles.engine_standing import Judge
from kvcompass.roles.holdings import ShardEdits
from kvcompass.roles.worker_agent import WorkerAgent
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger
from services.runtime.new_backoff import new_backoff
from services.runtime.sparse_log import SparseLog
from services.worker_agent.engine_client import EngineClient, EngineError
from services.worker_agent.engine_inquiry import EngineInquiry
from services.worker_agent.event_decoder import BatchError, EventDecoder
from services.worker_agent.event_endpoints import EventEndpoints, event_endpoints, wrong_rank
from services.worker_agent.event_source import (
    EventSourceError,
    LiveEvents,
    NoPublisherError,
    has_batch,
    replay,
)
from services.worker_agent.settings import EngineSettings

_REPLAY_ATTEMPTS: Final = 3
"""A replay with a hole in it was dropped by a full socket, not lost by the engine: it is asked for again."""
_MISCONFIGURED_US: Final = 5_000_000
"""Between two looks at an engine that has to be started otherwise."""
_SETTLED_US: Final = 1_000_000
"""No engine restarts twice within it: it takes seconds to load a model. Who seems to is no one engine."""


class EngineFollower:
    """Drives one `WorkerAgent` with its engine's batches. `publish` gets every change, also of mere state.

    Before it attaches it asks the engine what it is, each time: it may be another one than before.
    """

    def __init__(
        self,
        agent: WorkerAgent,
        client: EngineClient,
        context: zmq.asyncio.Context,
        *,
        dial: Callable[[str], str],
        settings: EngineSettings,
        new_epoch: Callable[[], int],
        publish: Callable[[tuple[ShardEdits, ...]], None],
        overhears: Callable[[bytes], None],
    ) -> None:
        """`dial` says where an address of the plan, or of the engine's host, is really reached.

        `overhears` is given every payload, also of an engine that is refused.
        """
        self._agent = agent
        self._context = context
        self._dial = dial
        self._timeout_s = settings.event_timeout_ms / 1_000
        self._quiet_ms = settings.quiet_ms
        self._new_epoch = new_epoch
        self._publish = publish
        self._overhears = overhears
        self.endpoints = EventEndpoints("", "")
        """Those in use; empty as long as none are known."""
        self._restarted_us: int | None = None
        self._rank_is_checked = False
        self._last: tuple[int, bytes] | None = None
        """Number and payload of the last batch taken in: only the same process has the same."""
        self._replay_answers = True
        """It did last time. A dead socket is not asked again without need: live batches wait meanwhile."""
        self._answers = asyncio.Event()
        self._gone = asyncio.Event()
        self._anew = asyncio.Event()
        self._log = get_logger("engine_follower").bind(worker=agent.worker.id)
        self._sparse_log = SparseLog(self._log)
        self.decoder = EventDecoder()
        self.broken_batches = 0
        """Payloads that were no batch at all."""
        self.replay_failures = 0
        """Replays that were not answered. Both count, and are monotonic."""
        self.problem = ""
        """Why the agent is not attached; empty while it is."""
        self.inquiry = EngineInquiry(agent, client, settings.kind, publish=publish, log=self._log)

    def engine_answers(self) -> None:
        """The engine answered over HTTP."""
        self._gone.clear()
        self._answers.set()

    def engine_gone(self) -> None:
        """The engine stopped answering over HTTP: its events are to be attached to anew."""
        self._answers.clear()
        self._gone.set()

    def attach_anew(self) -> None:
        """Leave the event stream and come again: what is held is to be learned from the start."""
        self._anew.set()

    async def run(self) -> None:
        """Run until cancelled."""
        backoff = new_backoff()
        while True:
            await self._answers.wait()
            least_us = 0
            try:
                await self.inquiry.ask()
                if self._agent.is_approximate:
                    self.problem = ""
                    await self._predicted()
                    continue
                self.endpoints = event_endpoints(self._agent, self._dial)
                async with LiveEvents(self._context, self.endpoints.events) as live:
                    await self._attach(live)
                    self.problem = ""
                    self._log.info("attached", state=self._agent.state.value, batch=self._agent.applied)
                    attached_us = now_us()
                    try:
                        problem = await self._follow(live)
                    finally:
                        if now_us() - attached_us >= _SETTLED_US:
                            backoff.reset()
            except NoPublisherError as error:
                problem, least_us = str(error), _MISCONFIGURED_US
                if self._answers.is_set() and not self._agent.engine.unconfigured:
                    self._agent.engine.on_no_publisher(problem)
            except (EngineError, EventSourceError) as error:
                problem = str(error)
            except zmq.ZMQError as error:
                problem = f"the event sockets fail: {error}"
            if problem != self.problem:
                self._log.warning("detached", reason=problem)
            self.problem = problem
            self._agent.on_events_lost()
            self._publish(())
            await asyncio.sleep(backoff.next_us(least_us) / 1e6)

    async def _predicted(self) -> None:
        """Its events are of no use. Return when the engine stops answering."""
        asking = asyncio.create_task(self.inquiry.keep_asking(self.attach_anew), name="engine facts")
        gone = asyncio.create_task(self._gone.wait(), name="engine gone")
        try:
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
        finally:
            asking.cancel()
            gone.cancel()
            await asyncio.gather(asking, gone, return_exceptions=True)

    async def _attach(self, live: LiveEvents) -> None:
        await live.connect(self._timeout_s)
        self._agent.lag.waits(now_us())
        self._rank_is_checked = False
        last, same = self._last, False
        if last is not None and self.endpoints.replay:
            same = await has_batch(self._context, self.endpoints.replay, *last, self._timeout_s)
        self._engine_up(same_process=same, first=last is None)
        replayed = await self._catch_up()
        self._agent.on_attached(replayed=replayed)
        self._publish(())

    def _engine_up(self, *, same_process: bool, first: bool) -> None:
        epoch = self._agent.epoch if same_process or first else self._new_epoch()
        if not same_process:
            self.decoder.forget_groups()
        self._publish(self._agent.on_engine_up(epoch, same_process=same_process))

    async def _follow(self, live: LiveEvents) -> str:
        """Take in live batches until the connection or the engine is lost; return which."""
        reading = asyncio.create_task(self._read(live), name="engine events")
        broken = asyncio.create_task(live.disconnected(), name="engine events monitor")
        gone = asyncio.create_task(self._gone.wait(), name="engine gone")
        anew = asyncio.create_task(self._anew.wait(), name="engine anew")
        asking = asyncio.create_task(self.inquiry.keep_asking(self.attach_anew), name="engine facts")
        tasks = reading, broken, gone, anew, asking
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for endless in (reading, asking):
                if endless.done():
                    endless.result()
            if anew.done():
                self._anew.clear()
                return "it is attached to anew"
            return "the engine does not answer" if gone.done() else "the event stream broke"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, live: LiveEvents) -> None:
        while True:
            if not live.waits:
                self._agent.lag.all_taken()
            batch = await live.next(self._quiet_ms)
            self._agent.lag.waits(now_us())
            if batch is None:
                await self._prove_life()
                continue
            self._overhears(batch[1])
            order = self._agent.order(batch[0])
            if order is Order.RESTARTED:
                await self._restarted(batch[0])
            elif self._agent.refusal is not None:
                await asyncio.sleep(0)
                continue
            if order in (Order.RESTARTED, Order.HOLE):
                await self._catch_up()
                self._agent.on_attached(replayed=True)
                self._publish(())
            self._take(*batch)
            await asyncio.sleep(0)

    async def _restarted(self, number: int) -> None:
        """Another process publishes. What was learned of the one before is withdrawn before anything else.

        Errors: EventSourceError when another one did just now.
        """
        before_us, self._restarted_us = self._restarted_us, now_us()
        if before_us is not None and self._restarted_us - before_us < _SETTLED_US:
            raise EventSourceError("its batches are numbered to and fro", field="events")
        self._log.warning("the engine restarted", batch=number, applied=self._agent.applied)
        self._last = None
        self._rank_is_checked = False
        self._engine_up(same_process=False, first=False)
        self._agent.order(number)
        await self.inquiry.ask()

    async def _prove_life(self) -> None:
        """The stream is quiet. A replay finds a dropped last batch, and out whether the publisher lives."""
        if not self.endpoints.replay:
            self._agent.engine.on_quiet()
        elif self._replay_answers or self._agent.engine.wants_proof:
            await self._catch_up()

    async def _catch_up(self) -> bool:
        """Replay what follows the last batch taken in. Returns whether the engine answered."""
        if not self.endpoints.replay or self._agent.refusal is not None:
            return False
        try:
            await self._replay_rest()
        except EventSourceError as error:
            self.replay_failures += 1
            if self._replay_answers:
                self._log.warning("no replay", reason=str(error))
            self._replay_answers = False
        else:
            self._replay_answers = True
        self._agent.engine.on_replay(answered=self._replay_answers)
        return self._replay_answers

    async def _replay_rest(self) -> None:
        for attempt in range(1, _REPLAY_ATTEMPTS + 1):
            first = self._agent.applied + 1
            batches = replay(self._context, self.endpoints.replay, first, self._timeout_s)
            async with aclosing(batches):
                async for number, payload in batches:
                    dropped = number > self._agent.applied + 1 and self._agent.applied >= first
                    if dropped and attempt < _REPLAY_ATTEMPTS:
                        break
                    self._overhears(payload)
                    self._take(number, payload)
                    await asyncio.sleep(0)
                else:
                    return

    def _take(self, number: int, payload: bytes) -> None:
        if number <= self._agent.applied:
            return
        if not self._rank_is_checked:
            self._rank_is_checked = True
            refusal = wrong_rank(payload, self._agent.worker.dp_rank, self.endpoints.events)
            if refusal is not None:
                self._publish(self._agent.judge(Judge.EVENTS, refusal))
        events: list[EngineNews]
        try:
            events = self.decoder.decode(payload)
        except BatchError as error:
            self.broken_batches += 1
            self._sparse_log.warning("broken batch", batch=number, reason=str(error))
            events = [EventsLost(removals=True)]
        state = self._agent.state
        edits = self._agent.on_batch(number, events)
        self._last = (number, payload)
        if edits or self._agent.state is not state:
            self._publish(edits)
