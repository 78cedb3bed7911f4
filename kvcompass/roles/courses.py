"""A request's course through attempts: which worker next, how many tries are left, whom a failure blames."""

import itertools
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.peer_edges import PeerEdges
from kvcompass.plan.model import Plan
from kvcompass.plan.seats import is_vacant
from kvcompass.roles.attempts import Attempt, Failure, Fault
from kvcompass.roles.edge import EdgeRole, Outcome
from kvcompass.routing.decision import NoWorker


class Course(Protocol):
    """Asked for attempts one after the other; each that is started is ended by `served` or `failed`."""

    def next(self, now_us: int) -> Attempt | NoWorker | None:
        """Where to try now. None: the budget is used up, or another try could not help."""

    def start(self, attempt: Attempt, now_us: int) -> None:
        """The request leaves."""

    def first_byte(self, attempt: Attempt, worker: int, prefilled: bool, now_us: int) -> None:
        """Its answer begins; `worker` gives it. `prefilled`: it is a completion and no error."""

    def served(self, attempt: Attempt, worker: int, cached_tokens: int | None, now_us: int) -> Outcome | None:
        """The answer is complete; `worker` gave it and says that it reused `cached_tokens`."""

    def failed(self, attempt: Attempt, failure: Failure, now_us: int) -> None:
        """There is no whole answer."""


class Courses:
    """Begins courses at one edge. `attempts` is the budget of a request, siblings at a peer edge included.

    `avoid_us`: how long a peer edge that failed is avoided; a worker is suspected for the plan's lease.
    """

    def __init__(self, plan: Plan, role: EdgeRole, *, attempts: int, avoid_us: int) -> None:
        self.attempts = attempts
        self.role = role
        self.peers = PeerEdges(plan, role.region, avoid_us)
        self._flights = itertools.count(1)
        self._follow(plan)

    def apply_plan(self, plan: Plan) -> None:
        """Goes by the next version of the plan, seated as the role's. Courses under way go on."""
        self.peers.apply_plan(plan)
        self._follow(plan)

    def _follow(self, plan: Plan) -> None:
        self.workers_of = {
            name: frozenset(
                i for i, worker in enumerate(plan.workers) if worker.region == name and not is_vacant(worker)
            )
            for name in plan.regions
        }
        self.plan = plan
        self._lease_us = plan.routing.lease_ms * 1000

    def begin(
        self,
        prompt_tokens: int,
        keys: NDArray[np.uint64],
        sharing_group: str,
        *,
        blind: bool = False,
        answer_tokens: float = inf,
    ) -> "OwnCourse":
        """The course of a client's request. Arguments as of `EdgeRole.decide`."""
        return OwnCourse(self, prompt_tokens, keys, sharing_group, blind, answer_tokens)

    def carry(self, worker: int, claim: int, prompt_tokens: int, attempts: int) -> "CarriedCourse":
        """The course of a peer edge's request, for a worker of this region; `attempts` is what it grants."""
        return CarriedCourse(self, worker, claim, prompt_tokens, attempts)

    def new_flight(self) -> int:
        """An id that no attempt of this edge had."""
        return next(self._flights)

    def blame_worker(self, worker: int, failure: Failure, now_us: int) -> None:
        """Suspect a worker that failed; a fault of our own or of the client blames nobody."""
        if failure.fault is Fault.REFUSED:
            self.role.fleet.declined(worker, now_us + failure.retry_after_us)
        elif failure.fault not in (Fault.OVERSIZED, Fault.CANCELLED):
            self.role.fleet.suspect(worker, now_us + self._lease_us)

    def blame_peer(self, attempt: Attempt, failure: Failure, now_us: int) -> None:
        """Judge what failed through a peer edge: the edge, when it gave no sign of life at all.

        An answer that breaks says that the worker died: an edge breaks it off on purpose. Where no edge of a
        region is left, its workers cannot be reached, however well they are.
        """
        if failure.fault in (Fault.UNREACHABLE, Fault.BROKEN):
            self.peers.failed(attempt.peer, now_us)
            if not self.peers.any_well(attempt.region, now_us):
                for worker in self.workers_of[attempt.region]:
                    self.role.fleet.suspect(worker, now_us + self._lease_us)
        elif failure.fault in (Fault.CUT, Fault.SILENT):
            answering = attempt.worker if failure.worker is None else failure.worker
            self.blame_worker(answering, failure, now_us)


class OwnCourse:
    """A client's request: over the workers of the world, and never to one twice."""

    def __init__(
        self,
        courses: Courses,
        prompt_tokens: int,
        keys: NDArray[np.uint64],
        group: str,
        blind: bool,
        answer_tokens: float,
    ) -> None:
        self._courses = courses
        self._role = courses.role
        self._prompt_tokens = prompt_tokens
        self._keys = keys
        self._keys_version = courses.role.keys_version
        self._group = group
        self._blind = blind
        self._answer_tokens = answer_tokens
        self._left = courses.attempts
        self._excluded: frozenset[int] = frozenset()
        self._tried_peers: frozenset[str] = frozenset()

    def next(self, now_us: int) -> Attempt | NoWorker | None:
        """The best worker that may still be tried."""
        if self._keys_version != self._role.keys_version:
            self._keys = self._keys[:0]
        while self._left > 0:
            decision = self._role.decide(
                self._prompt_tokens,
                self._keys,
                self._group,
                now_us,
                exclude=self._excluded,
                blind=self._blind,
                answer_tokens=self._answer_tokens,
            )
            if isinstance(decision, NoWorker):
                return decision
            peer, allowance = "", 1
            if decision.region != self._role.region:
                chosen = self._courses.peers.choose(decision.region, now_us, self._tried_peers)
                if chosen is None:
                    self._excluded |= self._courses.workers_of[decision.region]
                    continue
                # One try is kept for another region.
                peer, allowance = chosen, max(1, self._left - 1)
            return Attempt(
                self._courses.new_flight(),
                decision.worker,
                decision.worker_id,
                decision.region,
                peer,
                allowance,
                decision,
                decision.residual_ms,
            )
        return None

    def start(self, attempt: Attempt, now_us: int) -> None:
        """The request leaves."""
        assert attempt.decision is not None
        self._role.started(attempt.flight, attempt.decision, now_us)

    def first_byte(self, attempt: Attempt, worker: int, prefilled: bool, now_us: int) -> None:
        """Its answer begins."""
        self._role.first_byte(attempt.flight, now_us, worker=worker, prefilled=prefilled)

    def served(self, attempt: Attempt, worker: int, cached_tokens: int | None, now_us: int) -> Outcome | None:
        """The answer is complete. What a sibling reused says nothing about the worker that made the claim."""
        judged = cached_tokens if worker == attempt.worker else None
        return self._role.finished(attempt.flight, judged, now_us)

    def failed(self, attempt: Attempt, failure: Failure, now_us: int) -> None:
        """Settle, blame, and never the same worker again. A peer edge tries its region's workers itself."""
        self._role.failed(attempt.flight, now_us)
        if not attempt.peer:
            self._left -= 1
            self._excluded |= {attempt.worker}
            self._courses.blame_worker(attempt.worker, failure, now_us)
        else:
            self._left -= _used(attempt, failure)
            self._tried_peers |= {attempt.peer}
            if failure.fault is not Fault.UNREACHABLE:
                self._excluded |= self._courses.workers_of[attempt.region]
            self._courses.blame_peer(attempt, failure, now_us)
        if _is_last(failure):
            self._left = 0


class CarriedCourse:
    """A peer edge's request: the worker it names, then siblings by load alone."""

    def __init__(self, courses: Courses, worker: int, claim: int, prompt_tokens: int, attempts: int) -> None:
        self._courses = courses
        self._role = courses.role
        self._named = worker
        planned = courses.plan.workers[worker]
        self.named_id = planned.id
        """Of the worker named, whoever has its seat later."""
        self._group = planned.sharing_group
        self._claim = claim
        self._prompt_tokens = prompt_tokens
        self._left = max(1, min(attempts, courses.attempts))
        self._tried: frozenset[int] = frozenset()

    @property
    def used(self) -> int:
        """Attempts that have failed: the origin takes them off its budget."""
        return len(self._tried)

    def next(self, now_us: int) -> Attempt | NoWorker | None:
        """The worker named, then the sibling that is free soonest."""
        if self._left <= 0:
            return None
        workers = self._courses.plan.workers
        worker, new_tokens = self._named, max(0, self._prompt_tokens - self._claim)
        if self._tried or is_vacant(workers[worker]) or workers[worker].id != self.named_id:
            sibling = self._role.stand_in(self._prompt_tokens, self._group, now_us, self._tried)
            if isinstance(sibling, NoWorker):
                return sibling
            worker, new_tokens = sibling.worker, self._prompt_tokens
        rate = float(self._role.fleet.prefill_ms_per_token[worker])
        return Attempt(
            self._courses.new_flight(),
            worker,
            workers[worker].id,
            self._role.region,
            residual_ms=rate * new_tokens,
        )

    def start(self, attempt: Attempt, now_us: int) -> None:
        """The request passes on to its worker."""
        self._role.carried(attempt.flight, attempt.worker, attempt.residual_ms, now_us)

    def first_byte(self, attempt: Attempt, worker: int, prefilled: bool, now_us: int) -> None:
        """Its answer begins."""
        self._role.first_byte(attempt.flight, now_us, worker=worker, prefilled=prefilled)

    def served(self, attempt: Attempt, worker: int, cached_tokens: int | None, now_us: int) -> Outcome | None:
        """The answer is complete; what it teaches is the origin's to learn."""
        return self._role.finished(attempt.flight, None, now_us)

    def failed(self, attempt: Attempt, failure: Failure, now_us: int) -> None:
        """Settle, blame, and never the same worker again."""
        self._role.failed(attempt.flight, now_us)
        self._left -= 1
        self._tried |= {attempt.worker}
        self._courses.blame_worker(attempt.worker, failure, now_us)
        if _is_last(failure):
            self._left = 0


def _used(attempt: Attempt, failure: Failure) -> int:
    """What an attempt through a peer edge takes off the budget: all it was allowed, unless it is known."""
    if failure.fault is Fault.UNREACHABLE:
        return 1
    if failure.fault is Fault.REFUSED:
        return min(attempt.allowance, max(1, failure.used))
    return attempt.allowance


def _is_last(failure: Failure) -> bool:
    return failure.begun or failure.fault in (Fault.OVERSIZED, Fault.CANCELLED)
