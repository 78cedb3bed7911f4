"""The load that an engine last told, how old it is, and what is made of it."""

from collections.abc import Sequence
from typing import Final

from kvcompass.engine_events import EngineNews
from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.roles.queue_estimate import EngineLoad, QueueEstimate

_UNTOLD: Final = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)


class HeardLoad:
    """What an engine tells of its load, by itself or asked. Only an answer shows that it answers."""

    def __init__(self, prefill_ms_per_token: float, quantum: int) -> None:
        """Nothing was told yet. `prefill_ms_per_token`, `quantum`: the plan's."""
        self._estimate = QueueEstimate(prefill_ms_per_token, quantum)
        self.load = _UNTOLD
        self.heard_us = 0
        """When the engine told it."""
        self.answered_us = 0
        """When the engine last answered a question."""

    @property
    def mean_uncached_tokens(self) -> float:
        """Uncached tokens of a recent request, as the queue estimate takes them."""
        return self._estimate.mean_uncached_tokens

    def apply_plan(self, prefill_ms_per_token: float) -> None:
        """The plan's rate is another."""
        self._estimate.apply_plan(prefill_ms_per_token)

    def on_events(self, events: Sequence[EngineNews]) -> None:
        """Learn from a batch what requests compute."""
        self._estimate.on_events(events)

    def on_load(self, load: EngineLoad, heard_us: int, answered_us: int) -> None:
        """Take it in."""
        self._estimate.on_engine_load(load)
        self.load, self.heard_us, self.answered_us = load, heard_us, answered_us

    def of_worker(self, worker_id: str, state: WorkerState, now_us: int) -> WorkerLoad:
        """Return what edges are told; of an engine that is unreachable nothing but that."""
        is_up = state is not WorkerState.UNREACHABLE
        told = self.load if is_up else _UNTOLD
        return WorkerLoad(
            worker_id=worker_id,
            state=state,
            queue_ms=self._estimate.queue_ms(told),
            running=told.running,
            waiting=told.waiting,
            used_tokens=told.used_tokens,
            max_tokens=told.max_tokens,
            prefill_ms_per_token=self._estimate.measured_ms_per_token,
            age_ms=(now_us - self.heard_us) // 1_000 if is_up else 0,
        )
