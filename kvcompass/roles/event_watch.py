"""Notices that an engine serves requests and tells nothing of it: its publisher is missing or stuck."""

from typing import Final

from kvcompass.roles.queue_estimate import EngineLoad

SILENT_US: Final = 10_000_000
"""How long requests are served without a sign of the publisher before it is called silent, unless settings
differ. SGLang tells after each prefill and every 40 decode steps; a replay asked for in a quiet stream is
answered, or not, within 5 s."""


class EventWatch:
    """Weighs work that was seen against signs of life of the publisher: a batch, or a replay that answers.

    Work alone is no proof: who is asked again for what it holds stores nothing, though it prefills the last
    tokens each time. So an engine is silent only where work went on for `silent_us` with no sign of life, and

    - its replay socket, which has answered before, was asked since and did not, or
    - there is none that ever did, and no batch ever came.

    The first sign of life ends it.
    """

    __slots__ = (
        "_asked_in_vain",
        "_ever_heard",
        "_ever_replayed",
        "_heard",
        "_last",
        "_silent",
        "_silent_us",
        "_work_since_us",
        "silences",
    )

    def __init__(self, silent_us: int = SILENT_US) -> None:
        """Nothing is known yet."""
        self._silent_us = silent_us
        self._last: EngineLoad | None = None
        self._work_since_us: int | None = None
        """Since the last sign of life."""
        self._heard = self._ever_heard = self._ever_replayed = False
        self._asked_in_vain = False
        self._silent = False
        self.silences = 0
        """Times that the engine fell silent. Monotonic."""

    @property
    def is_silent(self) -> bool:
        """It serves requests and tells nothing."""
        return self._silent and not self._heard

    @property
    def never_heard(self) -> bool:
        """Not a word came from any process of this engine."""
        return not self._ever_heard

    @property
    def wants_proof(self) -> bool:
        """Work was seen since the last sign of life: a replay would say whether the publisher lives."""
        return not self._heard and self._work_since_us is not None

    def on_batch(self) -> None:
        """A batch came on the live stream, or in a replay."""
        self._heard = self._ever_heard = True

    def on_replay(self) -> None:
        """A replay was answered, whatever was in it."""
        self._heard = self._ever_heard = self._ever_replayed = True

    def on_unanswered(self) -> None:
        """The stream is quiet, and a replay was asked for in vain, or cannot be asked for."""
        self._asked_in_vain = self.wants_proof

    def on_load(self, load: EngineLoad, now_us: int) -> None:
        """What the engine does now."""
        last, self._last = self._last, load
        if self._heard:
            self._heard = self._silent = self._asked_in_vain = False
            self._work_since_us = None
        if self._work_since_us is None and _works(last, load):
            self._work_since_us = now_us
        if self._work_since_us is None or now_us - self._work_since_us < self._silent_us or self._silent:
            return
        if self._asked_in_vain and (self._ever_replayed or not self._ever_heard):
            self._silent = True
            self.silences += 1


def _works(last: EngineLoad | None, load: EngineLoad) -> bool:
    """Whether requests were served at a load, or between two."""
    if load.running > 0 or last is None:
        return load.running > 0
    rising = (
        (last.used_tokens, load.used_tokens),
        (last.prefill_uncached_tokens, load.prefill_uncached_tokens),
        (last.finished_requests, load.finished_requests),
    )
    return any(before is not None and now is not None and now > before for before, now in rising)
