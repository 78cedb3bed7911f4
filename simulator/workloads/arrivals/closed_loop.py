"""Closed loop: users who ask, wait for the answer, think, and ask again."""

from simulator.request import Request
from simulator.streams import random_stream
from simulator.workloads.workload import Conversation, Workload


class ClosedLoop:
    """So many users. Each has one request under way at a time, so a fleet is never asked for more than it
    gives.

    A user first goes on with the conversation, after its own pause; then, having thought, opens another one.
    Users begin one by one over a mean thinking time. A `RequestSource`.
    """

    def __init__(
        self, workload: Workload, *, users: int, think_s: float, count: int | None, seed: int
    ) -> None:
        assert users > 0
        assert think_s > 0
        self.label = f"{workload.label}, closed loop of {users} users who think {think_s:g} s"
        self._workload = workload
        self._think_us = 1e6 * think_s
        self._exponential = random_stream(seed, "workload.thinking").expovariate
        self._count = count
        self._made = 0
        self._users = users
        self._begun = 0
        self._rest: dict[int, Conversation] = {}
        """What follows each request under way."""

    def next(self) -> Request | None:
        """See `RequestSource`: the users' first requests."""
        if self._begun == self._users:
            return None
        self._begun += 1
        return self._ask(None, int((self._begun - 1) * self._think_us / self._users))

    def ended(self, request: Request, now_us: int) -> Request | None:
        """See `RequestSource`. A failed request ends its conversation like any other turn: it goes on."""
        rest = self._rest.pop(request.id, None)
        if rest is not None:
            return self._ask(rest, now_us + rest.pause_us)
        return self._ask(None, now_us + int(self._exponential(1 / self._think_us)))

    def _ask(self, rest: Conversation | None, arrives_us: int) -> Request | None:
        if self._made == self._count:
            return None
        if rest is None:
            turn = self._workload.opening(self._made, arrives_us)
        else:
            turn = rest.turn(self._made, arrives_us)
        if turn is None:
            return None
        if turn.rest is not None:
            self._rest[turn.request.id] = turn.rest
        self._made += 1
        return turn.request
