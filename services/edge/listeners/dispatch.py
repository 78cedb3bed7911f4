"""What a client's request adds to the attempt loop: decisions counted, reuse learned, load taken in."""

from collections.abc import Mapping

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import LoadVerdict
from kvcompass.roles.attempts import Attempt
from kvcompass.roles.courses import Course, Courses
from kvcompass.routing import Decision, NoWorker
from services.edge.fleet.piggyback import unpack_load
from services.edge.forwarding.attempt_loop import AttemptLoop, Cargo
from services.edge.forwarding.results import Broke, Served, last_word
from services.edge.forwarding.upstream import UpstreamAnswer
from services.edge.metrics import EdgeMetrics, Outcome
from services.edge.requests import errors
from services.edge.requests.exchange import Header
from services.edge.requests.headers import (
    ATTEMPTS_HEADER,
    CLAIM_HEADER,
    LOAD_HEADER,
    STREAM_HEADER,
    TOKENS_HEADER,
    WORKER_HEADER,
)
from services.edge.requests.prompts import Prompt
from services.edge.requests.usage import ReuseReader
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger


class Dispatcher:
    """Takes requests of the public listener to workers anywhere."""

    def __init__(self, courses: Courses, loop: AttemptLoop, metrics: EdgeMetrics) -> None:
        self.courses = courses
        self.metrics = metrics
        self.reuse = ReuseReader()
        self._loop = loop
        self._log = get_logger("dispatch")

    async def dispatch(
        self,
        cargo: Cargo,
        prompt: Prompt,
        group: str,
        *,
        arrived_us: int,
        choices: int,
        blind: bool,
        admin: bool,
        answer_tokens: float,
    ) -> Outcome:
        """Answers the request. Errors: ApiError when no attempt could; nothing was sent then."""
        course = self.courses.begin(
            prompt.tokens, prompt.keys, group, blind=blind, answer_tokens=answer_tokens
        )
        result = await self._loop.run(cargo, _Journey(self, course, cargo, arrived_us, choices, admin))
        if isinstance(result, Served):
            return Outcome.of_status(result.status)
        if isinstance(result, Broke) and result.begun:
            await cargo.exchange.cut(errors.upstream_failed("The worker failed while it answered."))
            return Outcome.CUT
        raise last_word(result)

    def take_load(self, attempt: Attempt, packed: str) -> None:
        """Folds in the queue vector of the edge that was asked; nobody else can speak for its region."""
        try:
            load = unpack_load(packed)
        except ProtocolError as error:
            use = "malformed"
            self._log.warning("bad piggyback", peer=attempt.peer, error=str(error))
        else:
            if load.edge_id == attempt.peer:
                use = self.courses.role.on_region_load(load, now_us()).value
            else:
                use = LoadVerdict.UNKNOWN_SENDER.value
        self.metrics.loads.labels("piggyback", use).inc()


class _Journey:
    """One request on its way; `services.edge.forwarding.attempt_loop.Trip`."""

    def __init__(
        self, dispatcher: Dispatcher, course: Course, cargo: Cargo, arrived_us: int, choices: int, admin: bool
    ) -> None:
        self.course = course
        self._dispatcher = dispatcher
        self._metrics = dispatcher.metrics
        self._fleet = dispatcher.courses.role.fleet
        self._cargo = cargo
        self._arrived_us = arrived_us
        self._choices = choices
        self._admin = admin
        self._decision_us = 0
        self._stepped_in: int | None = None
        """The worker that answers in the place of the one asked for."""

    def next(self) -> Attempt | NoWorker | None:
        began_us = now_us()
        attempt = self.course.next(began_us)
        if attempt is None:
            return None
        self._decision_us = now_us() - began_us
        self._metrics.decision.observe(self._decision_us)
        self._stepped_in = None
        if isinstance(attempt, Attempt):
            decision = _decision(attempt)
            self._metrics.decisions.labels(decision.reason.value, decision.region).inc()
        return attempt

    def facts(self, attempt: Attempt) -> Mapping[str, str]:
        decision = _decision(attempt)
        return {
            WORKER_HEADER: decision.worker_id,
            CLAIM_HEADER: str(decision.match_tokens),
            TOKENS_HEADER: str(decision.prompt_tokens),
            STREAM_HEADER: str(int(self._cargo.stream)),
            ATTEMPTS_HEADER: str(attempt.allowance),
        }

    def on_headers(self, attempt: Attempt, answer: UpstreamAnswer) -> None:
        if not attempt.peer:
            return
        self._stepped_in = self._sibling(attempt, answer.headers.get(WORKER_HEADER))
        packed = answer.headers.get(LOAD_HEADER)
        if packed is not None:
            self._dispatcher.take_load(attempt, packed)

    def on_first_byte(self, attempt: Attempt, answer: UpstreamAnswer) -> list[Header]:
        ttft = self._metrics.ttft.labels(self._cargo.endpoint, attempt.region)
        ttft.observe((now_us() - self._arrived_us) / 1e6)
        if not self._admin:
            return []
        return [
            (b"x-kvcompass-worker", self._fleet.worker_ids[self.answering(attempt)].encode()),
            (b"x-kvcompass-region", attempt.region.encode()),
            (b"x-kvcompass-match-tokens", b"%d" % _decision(attempt).match_tokens),
            (b"x-kvcompass-decision-us", b"%d" % self._decision_us),
        ]

    def on_served(self, attempt: Attempt, result: Served) -> None:
        worker, decision = self.answering(attempt), _decision(attempt)
        worker_id = self._fleet.worker_ids[worker]
        cached = None
        if result.status == 200:
            cached = self._dispatcher.reuse.cached_tokens(worker_id, result.usage, self._choices)
        outcome = self.course.served(attempt, worker, cached, now_us())
        if result.status != 200 or outcome is None:
            return
        metrics = self._metrics
        metrics.prompt.labels(worker_id).inc(decision.prompt_tokens)
        metrics.claimed.labels(decision.worker_id).inc(decision.match_tokens)
        metrics.reused.labels(worker_id).inc(cached or 0)

    def answering(self, attempt: Attempt) -> int:
        return attempt.worker if self._stepped_in is None else self._stepped_in

    def _sibling(self, attempt: Attempt, worker_id: str | None) -> int | None:
        """Who stepped in, as a peer says, provided that it is a worker of its region."""
        worker = self._fleet.index_of.get(worker_id or "")
        return worker if worker in self._dispatcher.courses.workers_of[attempt.region] else None


def _decision(attempt: Attempt) -> Decision:
    assert attempt.decision is not None, "this edge has decided"
    return attempt.decision
