"""Notices that an engine serves requests and tells nothing of it: its publisher is missing or stuck."""

from typing import Final

from kvcompass.roles.queue_estimate import EngineLoad

SILENT_US: Final = 10_000_000
"""How long requests are served without a sign of the publisher before it is called silent, unless settings
differ. SGLang tells after each prefill and every 40 decode steps; a replay asked for in a quiet stream is
answered, or not, within 5 s."""


class EventWatch:
    """Weighs work that was seen against signs of life of the publisher: a batch, or a replay that answers.

    Work alone is no proof: who is asked again for what it holds stores nothing. So an engine is silent only
    where work went on for `silent_us` with no sign of life, and

    - its replay socket was asked since, and did not answer, or
    - it has none, and has never said a word, or counts new tokens that it has prefilled.

    The first sign of life ends it.
    """

    __slots__ = (
        "_asked_in_vain",
        "_counted",
        "_ever_heard",
        "_heard",
        "_last",
        "_nobody_to_ask",
        "_quantum",
        "_silent",
        "_silent_us",
        "_work_since_us",
        "silences",
    )

    def __init__(self, quantum: int, silent_us: int = SILENT_US) -> None:
        """`quantum`: tokens; so many new ones never go without an event."""
        self._quantum = quantum
        self._silent_us = silent_us
        self._last: EngineLoad | None = None
        self._counted = 0
        """New tokens prefilled since the last sign of life, where the engine counts them."""
        self._work_since_us: int | None = None
        self._heard = self._ever_heard = False
        self._asked_in_vain = self._nobody_to_ask = False
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

    def on_heard(self) -> None:
        """A batch came, or a replay was answered."""
        self._heard = self._ever_heard = True

    def on_unanswered(self) -> None:
        """A replay was asked for in vain."""
        self._asked_in_vain = self.wants_proof

    def on_quiet(self) -> None:
        """Nothing came for a while, and there is no replay socket to ask."""
        self._nobody_to_ask = True

    def on_load(self, load: EngineLoad, now_us: int) -> None:
        """What the engine does now."""
        last, self._last = self._last, load
        if self._heard:
            self._heard = self._silent = self._asked_in_vain = self._nobody_to_ask = False
            self._counted, self._work_since_us = 0, None
        prefilled = _prefilled(last, load)
        self._counted += prefilled
        if self._work_since_us is None and (prefilled or _works(last, load)):
            self._work_since_us = now_us
        if self._work_since_us is None or now_us - self._work_since_us < self._silent_us or self._silent:
            return
        untold = self._nobody_to_ask and (not self._ever_heard or self._counted >= self._quantum)
        if self._asked_in_vain or untold:
            self._silent = True
            self.silences += 1


def _works(last: EngineLoad | None, load: EngineLoad) -> bool:
    return load.running > 0 or (last is not None and load.used_tokens > last.used_tokens)


def _prefilled(last: EngineLoad | None, load: EngineLoad) -> int:
    """New tokens since the load before; 0 where that is not counted, or the counter began anew."""
    if last is None:
        return 0
    counters = (
        (last.prefill_uncached_tokens, load.prefill_uncached_tokens),
        (last.finished_uncached_tokens, load.finished_uncached_tokens),
    )
    return max([0, *(now - before for before, now in counters if before is not None and now is not None)])
