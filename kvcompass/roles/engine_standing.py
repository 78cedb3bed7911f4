"""What speaks against an engine: that it contradicts the plan, or tells nothing of what it does."""

from enum import Enum, auto

from kvcompass.engine_facts import EngineFacts
from kvcompass.plan.model import Plan, Worker
from kvcompass.roles.engine_fit import EngineFit, EngineRefusal, engine_fit, events_flag
from kvcompass.roles.event_watch import EventWatch
from kvcompass.roles.queue_estimate import EngineLoad


class Judge(Enum):
    """Who may refuse an engine. Each speaks for itself alone."""

    FACTS = auto()
    """What the engine says of itself."""
    EVENTS = auto()
    """What it sends; a new engine process is heard anew."""
    PROBE = auto()
    """What it makes of a request that is asked for a test."""
    KIND = auto()
    """Whose routes it has: those of the engine that the agent was told, or another's."""


class EngineStanding:
    """Keeps what an engine said of itself, who refuses it, and whether its events have gone silent."""

    def __init__(self, plan: Plan, worker: Worker, silent_us: int) -> None:
        """`silent_us`: how long it may serve requests and send no events."""
        self.facts: EngineFacts | None = None
        """As last told; None as long as they were not."""
        self._plan = plan
        self._worker = worker
        self._fit = EngineFit()
        self._refusals: dict[Judge, EngineRefusal] = {}
        self._has_forgotten = False
        self._no_publisher = ""
        self._watch = EventWatch(silent_us)

    @property
    def refusal(self) -> EngineRefusal | None:
        """Why it cannot be served; None when it can."""
        return next(iter(self._refusals.values()), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What would make an engine better that is served as it is."""
        return self._fit.notes

    @property
    def is_silent(self) -> bool:
        """It answers and no events come."""
        return bool(self._fit.silence or self._no_publisher) or self._watch.is_silent

    @property
    def unconfigured(self) -> str:
        """Why no events can come, as it says itself; empty when they can."""
        return self._fit.silence

    @property
    def silence(self) -> str:
        """Why no events come, and what to do; empty unless it is silent."""
        known = self._fit.silence or self._no_publisher
        if known or not self._watch.is_silent:
            return known
        if self._watch.never_heard:
            return f"it serves requests and sends no events: start it with {self._flag}"
        return "it serves requests, and its events and replays have stopped: restart it"

    @property
    def silences(self) -> int:
        """Times that it stopped sending events. Monotonic."""
        return self._watch.silences

    @property
    def wants_proof(self) -> bool:
        """It has worked since its last sign of life: a replay is to be asked for in a quiet stream."""
        return self._watch.wants_proof

    def on_facts(self, facts: EngineFacts) -> EngineRefusal | None:
        """It has said what it is; returns what in that contradicts the plan."""
        self.facts = facts
        self._fit = engine_fit(facts, self._plan, self._worker)
        return self._fit.refusal

    def forget_facts(self) -> None:
        """What it is is unknown, and so whether that contradicts the plan."""
        self.facts = None
        self._fit = EngineFit()
        self.judge(Judge.FACTS, None)

    def judge(self, judge: Judge, refusal: EngineRefusal | None) -> None:
        """A judge refuses it, or takes back what it found before."""
        if refusal is None:
            self._refusals.pop(judge, None)
        else:
            self._refusals[judge] = refusal
            self._has_forgotten = True

    def forget_holdings(self) -> None:
        """What is known of its cache is to be learned from the start, at the next stream."""
        self._has_forgotten = True

    def on_event_stream(self, *, same_process: bool) -> bool:
        """Its event stream is open. Returns whether all that was known of it still is."""
        self._no_publisher = ""
        if not same_process:
            self._refusals.pop(Judge.EVENTS, None)
        remembered = same_process and not self._has_forgotten
        self._has_forgotten = bool(self._refusals)
        return remembered

    def on_down(self) -> None:
        """It stopped answering, and may come back otherwise."""
        self._no_publisher = ""

    def on_load(self, load: EngineLoad, now_us: int) -> None:
        """How busy it is."""
        self._watch.on_load(load, now_us)

    def on_batch(self) -> None:
        """A batch of events came, whatever is in it."""
        self._watch.on_batch()

    def on_replay(self, *, answered: bool) -> None:
        """A replay was asked for, and answered or not, whatever was in it."""
        if answered:
            self._watch.on_replay()
        else:
            self._watch.on_unanswered()

    def on_quiet(self) -> None:
        """No batch has come for a while, and there is no replay to ask for."""
        self._watch.on_unanswered()

    def on_no_publisher(self, what: str) -> None:
        """Nobody publishes where events should come from, although it answers; `what` was found."""
        self._no_publisher = f"{what}: start it with {self._flag}"

    @property
    def _flag(self) -> str:
        return events_flag("sglang" if self.facts is None else self.facts.engine, self._worker)
