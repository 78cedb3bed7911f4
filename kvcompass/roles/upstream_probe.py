"""Whether another edge is the one to follow: they are asked one by one, beside a loaded view's stream."""

from dataclasses import dataclass
from random import Random
from typing import Final

from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import Refusal, Unavailable, UnitToEdge
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.upstream_choice import Opening, UpstreamChoice

LOOK_US: Final = 500_000
"""Between two looks whether an edge is to be asked; each is sooner by up to a half at random."""
SILENT: Final = "it says nothing"
"""Why there is no answer, where none came in time."""


@dataclass(frozen=True, slots=True)
class NotServing:
    """An edge that was asked does not serve, or not from where the view is."""

    edge_id: str
    why: str
    is_news: bool
    """It was not asked before, or said something else; where it has served since, that too is news."""


class UpstreamProbe:
    """State machine of a feed's questions: at most one at a time, and none without a stream to leave for it.

    Its driver waits for `pause_us`, calls `ask`, opens the stream that this says, and ends it with the first
    message: that is the answer. Then it waits again.
    """

    def __init__(self, choice: UpstreamChoice, follower: IndexFollower, jitter: Random) -> None:
        self._choice = choice
        self._follower = follower
        self._jitter = jitter
        self._asked: Opening | None = None
        self._told: dict[str, str] = {}
        """Why an edge does not serve, by its id: as it was told."""

    @property
    def is_of_use(self) -> bool:
        """There may be edges that are to be asked, now or under another plan."""
        return self._choice.may_probe

    @property
    def answer_within_us(self) -> int:
        """How long an answer is waited for; what has not come by then is silence."""
        return self._follower.stale_after_us

    def pause_us(self) -> int:
        """How long to wait until the next look, from the beginning of a stream or the end of a question."""
        return round(LOOK_US * self._jitter.uniform(0.5, 1.0))

    def ask(self, now_us: int) -> Opening | None:
        """The stream to be opened beside the present one; None when nobody is to be asked now."""
        assert self._asked is None, "one edge at a time"
        if not self._follower.loaded:
            return None
        source = self._choice.to_probe(now_us)
        if source is not None:
            self._asked = Opening(source, self._follower.resume_request())
        return self._asked

    def answered(self, answer: UnitToEdge | str, now_us: int) -> Resubscribe | NotServing:
        """The stream's first message, or why there is none.

        A `Resubscribe` ends the present stream: the next one goes to the edge that was asked.
        """
        asked, self._asked = self._asked, None
        assert asked is not None, "nobody was asked"
        edge, starved = asked.source, self._follower.is_starved(now_us)
        message = None if isinstance(answer, str) else answer
        if self._choice.probed(edge, asked.request, message, now_us, starved=starved):
            self._told.pop(edge.id, None)
            return Resubscribe(ResubscribeReason.MOVED, f"{edge.id} serves")
        why = _in_words(answer)
        is_news = self._told.get(edge.id) != why
        self._told[edge.id] = why
        return NotServing(edge.id, why, is_news)

    def drop(self) -> None:
        """The present stream has ended: an answer that is still to come is not waited for."""
        self._asked = None


def _in_words(answer: UnitToEdge | str) -> str:
    match answer:
        case str():
            return answer
        case Refusal():
            return f"{answer.field}: {answer.message}"
        case Unavailable():
            return answer.reason.value
        case _:
            return f"it is elsewhere: {type(answer).__name__}"
