"""One engine on the clock: wakes it when something is due, and hands on what it tells."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kvcompass.engine_events import BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model import (
    BlockNames,
    Engine,
    EngineConfig,
    EngineRequest,
    ModelLoad,
    Progress,
    QueueLoad,
    Rejection,
)
from simulator.clock import Clock, Priority

_ENGINE: Final = Priority.ENGINE

Heard = Callable[[Sequence[Progress]], None]
Published = Callable[[Sequence[EngineEvent]], None]


class EngineHost:
    """Owns an engine. `heard` gets its progress and `published` its event batches, at their instants."""

    __slots__ = ("_clock", "_heard", "_published", "_wakes_us", "engine", "told_blocks")

    def __init__(self, clock: Clock, config: EngineConfig, heard: Heard, published: Published) -> None:
        self.engine: Final = Engine(replace(config, token_progress=False, block_names=BlockNames.NUMBERED))
        self.told_blocks: Final[Counter[str | None]] = Counter()
        """Blocks held in each medium, as the events so far say."""
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
        """The engine's load now."""
        load = self.engine.load(self._clock.now_us)
        self._settle()
        return load

    def queue_load(self) -> QueueLoad:
        """The part of it that is cheap to tell, for whoever asks often."""
        now_us, wakes_us = self._clock.now_us, self._wakes_us
        load = self.engine.queue_load(now_us)
        if wakes_us is not None and wakes_us <= now_us:
            self._settle()
        return load

    def _settle(self) -> None:
        engine = self.engine
        progress, batches = engine.take_progress(), engine.take_batches()
        due_us = engine.next_deadline_us()
        if due_us != self._wakes_us:
            self._wakes_us = due_us
            if due_us is not None:
                self._clock.at(due_us, _ENGINE, self._wake, due_us)
        for batch in batches:
            self._count(batch)
            self._published(batch)
        if progress:
            self._heard(progress)

    def _wake(self, due_us: int) -> None:
        if due_us == self._wakes_us:
            self._wakes_us = None
            self.engine.advance(due_us)
            self._settle()

    def _count(self, batch: Sequence[EngineEvent]) -> None:
        told = self.told_blocks
        for event in batch:
            if isinstance(event, BlockStored):
                told[event.medium] += len(event.hashes)
            elif isinstance(event, BlockRemoved):
                told[event.medium] -= len(event.hashes)
            else:
                told.clear()
