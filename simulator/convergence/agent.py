"""A worker's agent and how it stays on its engine, by the rules of `services.worker_agent`."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from kvcompass.engine_events import EngineEvent
from kvcompass.plan.model import Plan
from kvcompass.roles.backoff import Backoff
from kvcompass.roles.engine_feed import Order
from kvcompass.roles.holdings import ShardEdits
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.worker_agent import WorkerAgent
from simulator.convergence.engine import Engine
from simulator.convergence.fabric import Fabric
from simulator.convergence.process import Process
from simulator.product.periods import (
    EVENT_TIMEOUT_US,
    LOAD_FAILURES,
    LOAD_JITTER,
    LOAD_PERIOD_US,
    LOAD_TIMEOUT_US,
    QUIET_US,
)
from simulator.product.report_stream import ReportStream

_IDLE: Final = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=100_000)


class FollowedEngine:
    """One incarnation of an agent, beside one engine. A `Listener` of that.

    As `services.worker_agent.served_worker` polls for the load and `engine_follower` attaches, replays and
    detaches. An exchange with the engine, which is on the same machine, takes no time.
    """

    def __init__(
        self,
        fabric: Fabric,
        process: Process,
        agent: WorkerAgent,
        engine: Engine,
        streams: Sequence[ReportStream],
        random: Random,
        new_epoch: Callable[[], int],
    ) -> None:
        """`streams` by shard. `random` is for jitters."""
        self.agent: Final = agent
        self.streams: Final = streams
        self.live_loss = 0.0
        """Share of live batches that do not come."""
        self.lost_batches = 0
        self._fabric = fabric
        self._process = process
        self._engine = engine
        self._random = random
        self._new_epoch = new_epoch
        self._backoff = Backoff(random)
        self._failures = 0
        self._answers = False
        """The engine answered last time that it was asked."""
        self._attached_to = 0
        """Run of the engine whose live events come; 0: none."""
        self._pausing = False
        """Until it is attached to again."""
        self._last: tuple[int, int] | None = None
        """Run and number of the last batch taken in."""
        self._heard_us = 0

    def start(self) -> None:
        """Ask the engine for its load, for ever; the rest follows."""
        for stream in self.streams:
            stream.dial()
        self._poll()

    # --- the plan ---------------------------------------------------------------------------------

    def apply_plan(self, plan: Plan) -> None:
        """Go by the next version, and register what both have."""
        for stream in self.streams:
            stream.apply_plan(plan)
        self._publish(self.agent.apply_plan(plan))

    def settle_plan(self) -> None:
        """Withdraw what only the version before registered."""
        for stream in self.streams:
            stream.report.settle_plan()
        self._publish(self.agent.settle_plan())

    # --- load -------------------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._engine.answers:
            self._answered()
        elif self._engine.is_paused:
            self._fabric.after(LOAD_TIMEOUT_US, self._waited)
        else:
            self._failed()

    def _waited(self) -> None:
        if self._engine.answers:
            self._answered()
        else:
            self._failed()

    def _answered(self) -> None:
        now_us = self._fabric.now_us
        self._failures = 0
        self.agent.on_engine_load(_IDLE, now_us)
        self._answers = True
        if self._attached_to == 0:
            self._try_to_attach()
        elif now_us - self._heard_us >= QUIET_US:
            self._heard_us = now_us
            self._catch_up()
        self._wake()
        self._poll_again()

    def _failed(self) -> None:
        self._failures += 1
        if self._failures == LOAD_FAILURES:
            self._answers = False
            self.agent.on_engine_down()
            if self._attached_to:
                self._detach()
            self._wake()
        self._poll_again()

    def _poll_again(self) -> None:
        period_us = LOAD_PERIOD_US * self._random.uniform(1 - LOAD_JITTER, 1 + LOAD_JITTER)
        self._fabric.after(round(period_us), self._poll)

    # --- events -----------------------------------------------------------------------------------

    def on_live(self, run: int, number: int, events: list[EngineEvent]) -> None:
        """The engine published a batch."""
        if not self._process.is_up or self._engine.listener is not self:
            return
        if self.live_loss and self._random.random() < self.live_loss:
            self.lost_batches += 1
            return
        self._fabric.act(self._process, self._live, run, number, events)

    def on_broken(self, run: int) -> None:
        """The engine's process is gone."""
        if self._process.is_up:
            self._fabric.act(self._process, self._broke, run)

    def _live(self, run: int, number: int, events: list[EngineEvent]) -> None:
        if run != self._attached_to:
            return
        self._heard_us = self._fabric.now_us
        order = self.agent.order(number)
        if order is Order.RESTARTED:
            self._engine_up(same_process=False, first=False)
            self.agent.order(number)
        if order in (Order.RESTARTED, Order.HOLE):
            self._catch_up()
            self.agent.on_attached(replayed=True)
            self._wake()
        self._take(run, number, events)

    def _broke(self, run: int) -> None:
        if run == self._attached_to:
            self._detach()

    def _detach(self) -> None:
        self._attached_to = 0
        self.agent.on_events_lost()
        self._wake()
        self._pausing = True
        self._fabric.after(self._backoff.next_us(), self._paused)

    def _paused(self) -> None:
        self._pausing = False
        self._try_to_attach()

    def _try_to_attach(self) -> None:
        """Once the engine answers and the pause is over."""
        if self._pausing or self._attached_to or not self._answers:
            return
        if self._engine.answers:
            self._attach()
        else:
            self._pausing = True
            self._fabric.after(EVENT_TIMEOUT_US, self._detach)

    def _attach(self) -> None:
        engine, agent, last = self._engine, self.agent, self._last
        same = last is not None and last[0] == engine.run and any(n == last[1] for n, _ in engine.ring)
        engine.listener = self
        self._attached_to = engine.run
        self._heard_us = self._fabric.now_us
        self._engine_up(same_process=same, first=last is None)
        agent.on_attached(replayed=self._catch_up())
        self._backoff.reset()
        self._wake()

    def _engine_up(self, *, same_process: bool, first: bool) -> None:
        epoch = self.agent.epoch if same_process or first else self._new_epoch()
        self._publish(self.agent.on_engine_up(epoch, same_process=same_process))

    def _catch_up(self) -> bool:
        """Replay what follows the last batch taken in. Returns whether the engine has a replay socket."""
        engine = self._engine
        if not engine.ring_batches or not engine.answers or engine.run != self._attached_to:
            return False
        first = self.agent.applied + 1
        for number, events in list(engine.ring):
            if number >= first:
                self._take(engine.run, number, events)
        return True

    def _take(self, run: int, number: int, events: list[EngineEvent]) -> None:
        if number > self.agent.applied:
            state = self.agent.state
            edits = self.agent.on_batch(number, events)
            self._last = run, number
            if edits or self.agent.state is not state:
                self._publish(edits)

    def _publish(self, edits: tuple[ShardEdits, ...]) -> None:
        for edit in edits:
            self.streams[edit.shard].report.on_edits(edit)
        self._wake()

    def _wake(self) -> None:
        for stream in self.streams:
            stream.wake()
