"""The worker agent: what one engine holds and how busy it is, for the units and for its region's edges."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kvcompass.engine_events import AllBlocksCleared, EngineNews, EventsLost
from kvcompass.engine_facts import EngineFacts
from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.keys import namespace
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.engine_feed import EngineFeed, Order
from kvcompass.roles.engine_fit import EngineRefusal, pages_fit
from kvcompass.roles.engine_standing import EngineStanding, Judge
from kvcompass.roles.event_intake import BlockSizeMismatch
from kvcompass.roles.event_lag import EventLag
from kvcompass.roles.event_watch import SILENT_US
from kvcompass.roles.heard_load import HeardLoad
from kvcompass.roles.holdings import Holdings, RepeatedStores, ShardEdits
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.replica_prefill import WorkerNow
from kvcompass.roles.told_holdings import NOTHING_TOLD, ToldHoldings

_LIMITS: Final = TreeLimits()
_LOST_MOST: Final = 1 << 53
"""Counted no further: what reads the count may hold it as a float."""


class WorkerAgent:
    """State machine of one worker. Events and loads go in, edits by shard and loads come out.

    The order of calls at attach: `on_engine_facts` where they were told, `on_engine_up`, the replayed batches
    by `on_batch`, `on_attached`; then for each live batch `order`, and `on_batch` unless it says otherwise.
    `on_engine_load` and `on_engine_down` come at any time.
    """

    def __init__(
        self,
        plan: Plan,
        worker_id: str,
        epoch: int,
        *,
        repeated_stores: RepeatedStores = RepeatedStores.COUNTED,
        limits: TreeLimits = _LIMITS,
        silent_us: int = SILENT_US,
    ) -> None:
        """Start unattached and holding nothing.

        Args:
            plan: Of the fleet.
            worker_id: A worker of the plan.
            epoch: Of this run of the agent; larger than any before.
            repeated_stores: The engine's habit.
            limits: Bounds on memory.
            silent_us: How long an engine may serve requests and send no events.
        """
        self.worker = plan.workers[plan.worker_index(worker_id)]
        self.epoch = epoch
        self.engine = EngineStanding(plan, self.worker, silent_us)
        self._plan = plan
        self._reachable: bool | None = None
        self._identified = False
        self._attached = False
        self._learning = True
        """The past of an engine's process is being replayed: part of it is no truth, and nobody is told."""
        self._complete = True
        self._rules = self._rules_of(None)
        """By which events are taken in."""
        self._feed = EngineFeed()
        self.lag = EventLag()
        """Of the events. Who reads them says when some wait, and when none does."""
        self._load = HeardLoad(self.worker.prefill_ms_per_token, plan.lengths.quantum)
        self._lease_us = plan.routing.lease_ms * 1_000
        self.holdings = Holdings(
            namespace(plan.model, plan.salt_of(self.worker.sharing_group)),
            block_size=plan.model.block_size,
            lengths=registered_lengths(plan),
            shards=plan.shards,
            repeated_stores=repeated_stores,
            limits=limits,
            keys_max=plan.worker_entries_max,
        )
        self.batches = 0
        """Batches taken in. Monotonic, as are the three below."""
        self.holes = 0
        """Times that live batches were missing."""
        self.lost_batches = 0
        """Batches that no replay brought back."""
        self.engine_restarts = 0

    def apply_plan(self, plan: Plan) -> tuple[ShardEdits, ...]:
        """Go by the next version of the plan, which has this worker and may follow the present one.

        Until `settle_plan` the lengths of both are registered, and the wider of two bounds holds.

        Returns:
            What is registered besides.
        """
        before, self._plan = self._plan, plan
        self.worker = plan.workers[plan.worker_index(self.worker.id)]
        self._load.apply_plan(self.worker.prefill_ms_per_token)
        self._lease_us = plan.routing.lease_ms * 1_000
        lengths = np.union1d(registered_lengths(before), registered_lengths(plan))
        keys_max = max(before.worker_entries_max, plan.worker_entries_max)
        return self._to_tell(self.holdings.use_lengths(lengths, keys_max))

    def settle_plan(self) -> tuple[ShardEdits, ...]:
        """Register at the plan's own lengths alone.

        Returns:
            The withdrawals.
        """
        lengths = registered_lengths(self._plan)
        return self._to_tell(self.holdings.use_lengths(lengths, self._plan.worker_entries_max))

    @property
    def state(self) -> AgentState:
        """How well the agent knows its worker."""
        if self._reachable is False:
            return AgentState.UNREACHABLE
        if self.refusal is not None:
            return AgentState.REFUSED
        if self.is_approximate:
            return AgentState.APPROXIMATE
        if self.engine.is_silent:
            return AgentState.SILENT
        if not self._attached or self.lag.is_late:
            return AgentState.ATTACHING
        return AgentState.EXACT if self._complete else AgentState.PARTIAL

    @property
    def is_approximate(self) -> bool:
        """By plan, what it holds is predicted by edges, and nothing is registered here."""
        return self.worker.holdings == "predicted"

    @property
    def refusal(self) -> EngineRefusal | None:
        """Why the engine cannot be served; None when it can."""
        return self.engine.refusal

    @property
    def vouches(self) -> bool:
        """Whether what was reported stands.

        It does while the engine answers, tells what it does, is the process that was learned from, and is
        followed: its events wait for no longer than a lease. Nothing is reported of holdings that are
        predicted, and that stands. Units are told nothing otherwise, so that the lease ends.
        """
        if self._reachable is not True:
            return False
        if self.is_approximate:
            return True
        return self._identified and not self.engine.is_silent and not self.lag.is_late

    def may_renew(self, now_us: int) -> bool:
        """Whether the lease may be renewed: the engine has answered within `answers_within_us`, and its
        events have waited for no longer.

        So a lease ends soon after the last answer, whether the engine is gone or hangs, however late that is
        noticed. `vouches` goes on meanwhile: it may be busy, and is renewed once it answers.
        """
        waited_us = max(now_us - self._load.answered_us, self.lag.us(now_us))
        return self.vouches and waited_us <= self.answers_within_us

    @property
    def answers_within_us(self) -> int:
        """Age at which an answer of the engine is too old to renew the lease: a sixth of the lease."""
        return self._lease_us // 6

    @property
    def told(self) -> ToldHoldings:
        """What units are to know: nothing of a process whose past is still being replayed."""
        return NOTHING_TOLD if self._learning else self.holdings

    @property
    def applied(self) -> int:
        """Number of the engine's last batch taken in; -1 before the first."""
        return self._feed.applied

    @property
    def mean_uncached_tokens(self) -> float:
        """Uncached tokens of a recent request, as the queue estimate takes them."""
        return self._load.mean_uncached_tokens

    def order(self, sequence: int) -> Order:
        """Say how a live batch follows what was taken in. Call it once for each, as they come.

        HOLE: replay from `applied + 1`, then give it to `on_batch`, whether or not the replay was of use.
        RESTARTED: call `on_engine_up(same_process=False)` and replay from 0.
        """
        order = self._feed.arrived(sequence)
        self.holes += order is Order.HOLE
        return order

    def on_batch(self, sequence: int, events: Sequence[EngineNews]) -> tuple[ShardEdits, ...]:
        """Take in one batch and return what changed, by shard.

        A batch at or before `applied` changes nothing. Where something is missing, batches before this one
        or events in it, the state becomes PARTIAL, and where removals may be among it the holdings are built
        anew from there. A batch that clears the cache makes it EXACT again.
        """
        self.engine.on_batch()
        if self.refusal is not None or sequence <= self._feed.applied:
            return ()
        if self.is_approximate:
            self._feed.applied = sequence
            return ()
        missing = sequence - self._feed.applied - 1
        if missing:
            self.lost_batches = min(self.lost_batches + missing, _LOST_MOST)
            events = (EventsLost(removals=True), *events)
        elif sequence == 0:
            self._complete = True
        self._feed.applied = sequence
        self.batches += 1
        self._load.on_events(events)
        left_out = self.holdings.left_out
        edits = self.holdings.apply(events)
        if isinstance(edits, BlockSizeMismatch):
            edits = self._other_pages(edits.reported, events)
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self._complete = True
            elif isinstance(event, EventsLost):
                self._complete = False
        if self.holdings.left_out != left_out:
            self._complete = False
        return self._to_tell(edits)

    def on_engine_facts(self, facts: EngineFacts) -> tuple[ShardEdits, ...]:
        """The engine has said what it is, before it is attached to (again) or later.

        Returns:
            The withdrawals of a refusal.
        """
        withdrawn = self.judge(Judge.FACTS, self.engine.on_facts(facts))
        if not self.holdings.blocks:
            self._go_by_facts()
        return withdrawn

    def on_facts_unknown(self) -> None:
        """The engine, which may be another one, does not say what it is: what was said before is void."""
        self.engine.forget_facts()
        if not self.holdings.blocks:
            self._go_by_facts()

    @property
    def is_learned_otherwise(self) -> bool:
        """What is held was taken in by other rules than those that follow from the facts."""
        facts = self.engine.facts
        if facts is None or self.refusal is not None or not self.holdings.blocks:
            return False
        return self._rules_of(facts) != self._rules

    def judge(self, judge: Judge, refusal: EngineRefusal | None) -> tuple[ShardEdits, ...]:
        """Refuse the engine for what a judge has found, or take back what that judge had found before.

        One that is taken back counts when the engine is attached to anew: it is learned from the start then.

        Returns:
            The withdrawals of a refusal.
        """
        self.engine.judge(judge, refusal)
        return () if refusal is None else self._to_tell(self.holdings.clear())

    def on_attached(self, *, replayed: bool) -> None:
        """All that the engine could replay has been taken in. `replayed`: whether it could at all."""
        if not replayed and self._feed.applied < 0:
            self._complete = False
        self._attached = True
        self._learning = False

    def on_events_lost(self) -> None:
        """The event stream broke. Until `on_engine_up` it may be any engine process."""
        self._identified = self._attached = False
        self.lag.all_taken()

    def on_engine_down(self) -> None:
        """The engine stopped answering."""
        self._reachable = False
        self.engine.on_down()
        self.on_events_lost()

    def on_engine_up(self, epoch: int, *, same_process: bool) -> tuple[ShardEdits, ...]:
        """The event stream of the engine is open (again).

        Args:
            epoch: Of the report streams from here on.
            same_process: Whether the last batch taken in is still its own; if not, everything is forgotten
                and learned anew, from the facts as last told.

        Returns:
            The withdrawals.
        """
        assert epoch >= self.epoch, "epochs only grow"
        self.epoch = epoch
        self._identified = True
        self._attached = False
        self._feed.reconnected()
        if self.engine.on_event_stream(same_process=same_process):
            return ()
        self.engine_restarts += not same_process and self._feed.applied >= 0
        self._feed.reset()
        self._complete = True
        withdrawn = self._to_tell(self.holdings.clear())
        self._learning = True
        self._go_by_facts()
        return withdrawn

    def on_engine_load(
        self, load: EngineLoad, now_us: int, *, heard_us: int | None = None, answered_us: int | None = None
    ) -> None:
        """Take in the engine's load.

        Args:
            load: As it is now, for all that is known.
            now_us: On the agent's clock.
            heard_us: When the engine told it; None: now.
            answered_us: When the engine last answered a question; None: now, with this load.
        """
        self._reachable = True
        self._load.on_load(
            load,
            now_us if heard_us is None else heard_us,
            now_us if answered_us is None else answered_us,
        )
        self.engine.on_load(load, now_us)
        self.lag.look(now_us, self._lease_us)

    def load(self, now_us: int) -> WorkerLoad | None:
        """Return the worker's load as it is now; None as long as the engine was not asked to an end."""
        if self._reachable is None:
            return None
        if not self._reachable:
            state = WorkerState.UNREACHABLE
        else:
            state = WorkerState.READY if self.refusal is None else WorkerState.DRAINING
        return self._load.of_worker(self.worker.id, state, now_us)

    @property
    def seen(self) -> WorkerNow:
        """What a replica's prefill goes by. Blocks that only DRAM has count as in VRAM: more, not less.

        A cache that has other scopes' blocks too is not known exactly.
        """
        return WorkerNow(
            serves=self._reachable is True and self.refusal is None and not self.worker.drain,
            exact=self.state is AgentState.EXACT and not self.holdings.is_shared,
            load=self._load.load,
            heard_at_us=self._load.heard_us,
            cached_tokens=self.holdings.cached_blocks * self.holdings.block_size,
        )

    def _other_pages(self, reported: int, events: Sequence[EngineNews]) -> tuple[ShardEdits, ...]:
        """A batch has blocks of another size than was known: of one that fits, if they are the first."""
        refusal = pages_fit(reported, self._plan)
        if refusal is None and not self.holdings.blocks:
            self.holdings.use_block_size(reported)
            edits = self.holdings.apply(events)
            if not isinstance(edits, BlockSizeMismatch):
                return edits
            reported = edits.reported
        return self.judge(
            Judge.EVENTS,
            refusal
            or EngineRefusal(
                "block_size",
                f"it stores blocks of {reported} tokens beside blocks of {self.holdings.block_size}; pages "
                "of an engine are of one size",
            ),
        )

    def _go_by_facts(self) -> None:
        """Take events in by what the facts tell, or by the plan where they do not. Nothing is held."""
        if self.refusal is not None:
            return
        self._rules = self._rules_of(self.engine.facts)
        self.holdings.use_block_size(self._rules[0])
        self.holdings.use_tiers(told=self._rules[1])

    def _rules_of(self, facts: EngineFacts | None) -> tuple[int, bool]:
        """Tokens a block as told, else the plan's; and whether events say in which tier each block is."""
        block_size = self._plan.model.block_size
        if facts is None:
            return block_size, True
        return facts.page_size or block_size, facts.tells_tiers or not facts.host_tier

    def _to_tell(self, edits: tuple[ShardEdits, ...]) -> tuple[ShardEdits, ...]:
        return () if self._learning else edits
