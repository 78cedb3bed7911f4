"""Where a worker's self-test stands: what each verdict means, and when to test again."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvcompass.self_test.verdict import Agreement, Difference, Unheard, Verdict

CONFIRMATIONS: Final = 2
"""Tests in a row that must differ before a worker is refused: a template may name the day, and days end."""
UNHEARD_MOST: Final = 3
"""Tests in a row that hear nothing of the probe; then the engine's events do not tell of it."""
_FIRST_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000
"""Between two tries at what may come any moment: an edge, an engine that is busy."""
_SETTLED_PAUSE_MS: Final = 60_000
"""Until a refused worker is tested again: its engine or the edges' template may have been mended."""
_UNTESTABLE_PAUSE_MS: Final = 300_000
"""Until what cannot be tested is tried again: edges may have been upgraded."""


class SelfTestResult(StrEnum):
    """The outcome. A closed set; the values are metric labels."""

    OFF = "off"
    PENDING = "pending"
    """Not known yet. The worker serves."""
    PASSED = "passed"
    REFUSED = "refused"
    """Engine and edges read prompts differently, or its events are another engine's. The worker takes no
    requests."""
    NOT_TESTED = "not_tested"
    """It cannot be known; the reason is said. The worker serves."""


class Untestable(StrEnum):
    """Why a worker cannot be tested. A closed set."""

    NO_EVENTS = "the engine's events cannot be heard"
    NO_CHAT_ROUTE = "the engine serves no /v1/chat/completions"
    PROBE_DENIED = "the engine denies the probe"
    UNTOLD = "the engine answered the probe, and its events do not tell of it"
    HALF_OF_A_PAIR = "the engine is half of a prefill-decode pair"
    OLD_EDGES = "no edge of the region renders for agents yet: they are of the version before"
    REFUSED_BEFORE = "the worker is refused already"


class Consequence(StrEnum):
    """What a verdict asks for."""

    NONE = "none"
    REFUSE = "refuse"
    READMIT = "readmit"
    """It was refused, and is not any more: what it holds is to be learned anew."""


@dataclass(frozen=True, slots=True)
class SelfTestState:
    """What is known of a worker."""

    result: SelfTestResult
    reason: str = ""
    """Why it is neither passed nor refused, or the cause of a refusal; empty when passed."""
    difference: Difference | None = None
    """The last one, if engine and edge differ."""
    agreement: Agreement | None = None
    """What was compared, if they agree."""
    is_foreign: bool = False
    """Refused, for what is told is not what this engine stores."""


_OFF: Final = SelfTestState(SelfTestResult.OFF, "self_test.enabled is false")
_UNTESTED: Final = SelfTestState(SelfTestResult.PENDING, "not tested yet")


class SelfTest:
    """The self-test of one worker. Pure: verdicts go in, its state and the next pause come out."""

    def __init__(self, *, enabled: bool) -> None:
        """Start untested."""
        self._first = _UNTESTED if enabled else _OFF
        self.state = self._first
        self.tests = 0
        """Verdicts so far. Monotonic."""
        self._pause_ms = self._differed = self._unheard = self._foreign = 0
        self._tries = -1

    def begin_anew(self) -> None:
        """There is another engine process: nothing is known of it. A refusal stands until it agrees."""
        if not self._is_refused:
            self.state = self._first
        self._pause_ms = self._differed = self._unheard = self._foreign = 0
        self._tries = -1

    @property
    def pause_ms(self) -> int | None:
        """From the last verdict to the next test, before jitter; None when there is none to come."""
        match self.state.result:
            case SelfTestResult.OFF | SelfTestResult.PASSED:
                return None
            case SelfTestResult.REFUSED:
                return _SETTLED_PAUSE_MS
            case SelfTestResult.NOT_TESTED:
                return _UNTESTABLE_PAUSE_MS
        return self._pause_ms

    def on_verdict(self, verdict: Verdict, *, others_told: bool = False) -> Consequence:
        """Take in a comparison.

        Args:
            verdict: Of the comparison.
            others_told: Other blocks are claimed of this engine, or were told meanwhile, and no event was
                missed that could have been the probe's.
        """
        self.tests += 1
        was_refused = self._is_refused
        if isinstance(verdict, Agreement):
            self.state = SelfTestState(SelfTestResult.PASSED, agreement=verdict)
            self._pause_ms = self._differed = self._unheard = self._foreign = 0
            self._tries = -1
            return Consequence.READMIT if was_refused else Consequence.NONE
        if isinstance(verdict, Difference):
            return self._on_difference(verdict)
        return self._on_unheard(verdict, others_told)

    def on_untestable(self, why: Untestable, detail: str = "") -> None:
        """It cannot be tested. A worker that was refused stays so."""
        if not self._is_refused:
            reason = f"{why.value}: {detail}" if detail else why.value
            self.state = SelfTestState(SelfTestResult.NOT_TESTED, reason)

    def on_no_answer(self, reason: str) -> None:
        """An edge or the engine did not answer: it is tried again, later each time."""
        self._wait(reason)

    @property
    def _is_refused(self) -> bool:
        return self.state.result is SelfTestResult.REFUSED

    def _on_difference(self, difference: Difference) -> Consequence:
        self._differed += 1
        self._unheard = self._foreign = 0
        if not self._is_refused and self._differed < CONFIRMATIONS:
            self._tries = -1
            self._wait(f"differs, likely by {difference.cause.value}: it is looked at once more")
            return Consequence.NONE
        known = self._is_refused and not self.state.is_foreign
        consequence = Consequence.NONE if known else Consequence.REFUSE
        cause = difference.cause.value
        self.state = SelfTestState(SelfTestResult.REFUSED, cause, difference=difference)
        return consequence

    def _on_unheard(self, verdict: Unheard, others_told: bool) -> Consequence:
        """A new text is always stored: who tells of others and never of it tells of another engine."""
        self._unheard += 1
        self._foreign = self._foreign + 1 if others_told and verdict is Unheard.NOTHING else 0
        heard = f"the probe's blocks were not heard: {verdict.value}"
        if self.state.is_foreign and verdict is Unheard.INCOMPLETE:
            self.begin_anew()
            self.state = self._first
            self._wait(heard)
            return Consequence.READMIT
        if self._is_refused:
            return Consequence.NONE
        if self._foreign >= UNHEARD_MOST:
            self.state = SelfTestState(SelfTestResult.REFUSED, "events", is_foreign=True)
            return Consequence.REFUSE
        if self._unheard >= UNHEARD_MOST:
            self.on_untestable(Untestable.UNTOLD, verdict.value)
        else:
            self._wait(heard)
        return Consequence.NONE

    def _wait(self, reason: str) -> None:
        if self._is_refused:
            return
        self._tries += 1
        self._pause_ms = min(_FIRST_PAUSE_MS << min(self._tries, 16), _LONGEST_PAUSE_MS)
        self.state = SelfTestState(SelfTestResult.PENDING, reason)
