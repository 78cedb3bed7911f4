"""One engine on the clock: wakes it when something is due, and hands on what it tells."""

from collections.abc import Callable, Sequence

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, EngineConfig, EngineRequest, ModelLoad, Progress, Rejection
from simulator.clock import Clock, Priority

Heard = Callable[[Sequence[Progress]], None]
Published = Callable[[Sequence[EngineEvent]], None]


class EngineHost:
    """Owns an engine. `heard` gets its progress and `published` its event batches, at their instants."""

    def __init__(self, clock: Clock, config: EngineConfig, heard: Heard, published: Published) -> None:
        self.engine = Engine(config)
        self._clock = clock
        self._heard = heard
        self._published = published
        self._wakes_us: int | None = None
        """The wake that counts; others in the heap are overtaken."""

    def submit(self, request: EngineRequest) -> Rejection | None:
        """Give the engine a request now."""
        rejection = self.engine.submit(request, self._clock.now_us)
        self._settle()
        return rejection

    def load(self) -> ModelLoad:
        """What the engine tells of its load now."""
        load = self.engine.load(self._clock.now_us)
        self._settle()
        return load

    def _settle(self) -> None:
        progress = self.engine.take_progress()
        batches = self.engine.take_batches()
        due_us = self.engine.next_deadline_us()
        if due_us is not None and due_us != self._wakes_us:
            self._clock.at(due_us, Priority.ENGINE, lambda: self._wake(due_us))
        self._wakes_us = due_us
        for batch in batches:
            self._published(batch)
        if progress:
            self._heard(progress)

    def _wake(self, due_us: int) -> None:
        if due_us == self._wakes_us:
            self._wakes_us = None
            self.engine.advance(due_us)
            self._settle()
