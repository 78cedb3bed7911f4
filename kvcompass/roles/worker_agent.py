"""The worker agent: what one engine holds and how busy it is, for the units and for its region's edges."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.keys import namespace
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.engine_events import AllBlocksCleared, EngineEvent
from kvcompass.roles.engine_feed import EngineFeed, Order
from kvcompass.roles.holdings import BlockSizeMismatch, Holdings, RepeatedStores, ShardEdits
from kvcompass.roles.queue_estimate import EngineLoad, QueueEstimate

_LIMITS: Final = TreeLimits()
_UNTOLD: Final = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)


class AgentState(Enum):
    """How well the agent knows its worker."""

    ATTACHING = "attaching"
    """The engine was not reached yet, or its past batches are being replayed."""
    EXACT = "exact"
    """Every batch since the engine started, or since it last cleared its cache, was taken in."""
    PARTIAL = "partial"
    """Batches were lost for good: until the cache is cleared, it may hold more or less than is known."""
    UNREACHABLE = "unreachable"
    """The engine does not answer. Its lease is left to end."""
    REFUSED = "refused"
    """The engine contradicts the plan (`refusal`). It is not indexed and takes no requests."""


@dataclass(frozen=True, slots=True)
class EngineRefusal:
    """What in an engine contradicts the plan."""

    field: str
    message: str


class WorkerAgent:
    """State machine of one worker. Events and loads go in, edits by shard and loads come out.

    The order of calls at attach: `on_engine_up`, the replayed batches by `on_batch`, `on_attached`, then live
    batches: `order` first, `on_batch` unless it says otherwise.
    """

    def __init__(
        self,
        plan: Plan,
        worker_id: str,
        epoch: int,
        *,
        repeated_stores: RepeatedStores = RepeatedStores.COUNTED,
        limits: TreeLimits = _LIMITS,
    ) -> None:
        """Start unattached and holding nothing.

        Args:
            plan: Of the fleet.
            worker_id: A worker of the plan.
            epoch: Of this run of the agent; larger than any before.
            repeated_stores: The engine's habit.
            limits: Bounds on memory.
        """
        self.worker = plan.workers[plan.worker_index(worker_id)]
        self.epoch = epoch
        self.refusal: EngineRefusal | None = None
        salt = next(group.salt for group in plan.sharing_groups if group.id == self.worker.sharing_group)
        self._shards = plan.shards
        self._state = AgentState.ATTACHING
        self._complete = True
        self._feed = EngineFeed()
        self._estimate = QueueEstimate(self.worker.prefill_ms_per_token, plan.lengths.quantum)
        self._engine_load = _UNTOLD
        self._loaded_at_us: int | None = None
        self.holdings = Holdings(
            namespace(plan.model, salt),
            salt=salt,
            block_size=plan.model.block_size,
            lengths=registered_lengths(plan),
            shards=plan.shards,
            repeated_stores=repeated_stores,
            limits=limits,
        )
        self.batches = 0
        """Batches taken in. Monotonic, as are the three below."""
        self.holes = 0
        """Times that live batches were missing."""
        self.lost_batches = 0
        """Batches that no replay brought back."""
        self.engine_restarts = 0

    @property
    def state(self) -> AgentState:
        """How well the agent knows its worker."""
        return self._state

    @property
    def engine_answers(self) -> bool:
        """Whether leases are to be renewed."""
        return self._state is not AgentState.UNREACHABLE and self._loaded_at_us is not None

    @property
    def applied(self) -> int:
        """Number of the engine's last batch taken in; -1 before the first."""
        return self._feed.applied

    def order(self, sequence: int) -> Order:
        """Say how a live batch follows what was taken in. Call it once for each, as they come.

        HOLE: replay from `applied + 1`, then give it to `on_batch` whether or not the replay was of use.
        RESTARTED: call `on_engine_up(same_process=False)` and replay from 0.
        """
        order = self._feed.arrived(sequence)
        self.holes += order is Order.HOLE
        return order

    def on_batch(
        self, sequence: int, events: Sequence[EngineEvent], *, replayed: bool = False
    ) -> tuple[ShardEdits, ...]:
        """Take in one batch and return what changed, by shard.

        A batch at or before `applied` changes nothing. One after a hole makes the state PARTIAL; if it was
        replayed, then so long a past is gone that the holdings are built anew from here. A batch that
        clears the cache makes it EXACT again.
        """
        if self._state is AgentState.REFUSED or sequence <= self._feed.applied:
            return ()
        missing = sequence - self._feed.applied - 1
        if missing:
            self.lost_batches += missing
            self._complete = False
        elif sequence == 0:
            self._complete = True
        self._feed.applied = sequence
        self.batches += 1
        self._estimate.on_events(events)
        begin = _after_clear(events)
        if begin or (missing and replayed):
            self._complete = self._complete or begin > 0
            events = (AllBlocksCleared(), *events[begin:])
        edits = self.holdings.apply(events)
        if isinstance(edits, BlockSizeMismatch):
            return self._refuse(edits)
        self._say_how_complete()
        return edits

    def on_attached(self, *, replayed: bool) -> None:
        """All that the engine could replay has been taken in. `replayed`: whether it could at all."""
        if not replayed and self._feed.applied < 0:
            self._complete = False
        if self._state is AgentState.ATTACHING:
            self._state = AgentState.EXACT
            self._say_how_complete()

    def on_engine_down(self) -> None:
        """The engine stopped answering. Nothing is forgotten yet: it may be the network."""
        if self._state is not AgentState.REFUSED:
            self._state = AgentState.UNREACHABLE
        self._loaded_at_us = None

    def on_engine_up(self, epoch: int, *, same_process: bool) -> tuple[ShardEdits, ...]:
        """The engine answers (again).

        Args:
            epoch: Of the report streams from here on.
            same_process: Whether the last batch taken in is still its own; if not, everything is forgotten
                and learned anew.

        Returns:
            The withdrawals.
        """
        assert epoch >= self.epoch, "epochs only grow"
        self.epoch = epoch
        self._feed.reconnected()
        if same_process:
            if self._state is not AgentState.REFUSED:
                self._state = AgentState.ATTACHING
            return ()
        self.engine_restarts += self._feed.applied >= 0
        self._feed.reset()
        self._state = AgentState.ATTACHING
        self._complete = True
        self.refusal = None
        return self.holdings.clear()

    def on_engine_load(self, load: EngineLoad, now_us: int) -> None:
        """Take in an answer of the engine's load endpoint."""
        self._estimate.on_engine_load(load)
        self._engine_load = load
        self._loaded_at_us = now_us

    def load(self, now_us: int) -> WorkerLoad | None:
        """Return the worker's load as it is now; None as long as the engine never told."""
        if self._state is AgentState.UNREACHABLE:
            told, state, age_us = _UNTOLD, WorkerState.UNREACHABLE, 0
        elif self._loaded_at_us is None:
            return None
        else:
            told, age_us = self._engine_load, now_us - self._loaded_at_us
            state = WorkerState.DRAINING if self._state is AgentState.REFUSED else WorkerState.READY
        return WorkerLoad(
            worker_id=self.worker.id,
            state=state,
            queue_ms=self._estimate.queue_ms(told),
            running=told.running,
            waiting=told.waiting,
            used_tokens=told.used_tokens,
            max_tokens=told.max_tokens,
            prefill_ms_per_token=self._estimate.measured_ms_per_token,
            age_ms=age_us // 1_000,
        )

    def digest(self, shard: int) -> int:
        """Return the digest of what the worker holds in a shard."""
        return self.holdings.digest(shard)

    def full_report(self, shard: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Return everything the worker holds in a shard: keys (uint64[n]) and tiers (uint8[n])."""
        return self.holdings.report(shard)

    def _refuse(self, mismatch: BlockSizeMismatch) -> tuple[ShardEdits, ...]:
        self._state = AgentState.REFUSED
        self.refusal = EngineRefusal(
            "block_size",
            f"worker {self.worker.id} stores blocks of {mismatch.reported} tokens, the plan says "
            f"{mismatch.planned}: start it with that page size, or change model.block_size",
        )
        return self.holdings.clear()

    def _say_how_complete(self) -> None:
        if self._state in (AgentState.EXACT, AgentState.PARTIAL):
            self._state = AgentState.EXACT if self._complete else AgentState.PARTIAL


def _after_clear(events: Sequence[EngineEvent]) -> int:
    """Return the position after the last event that clears the cache; 0 when there is none."""
    return next((i for i in range(len(events), 0, -1) if isinstance(events[i - 1], AllBlocksCleared)), 0)
