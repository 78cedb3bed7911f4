"""Asks workers of this region to prefill replicas, on the load streams that their agents hold open."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kvcompass.roles.messages import PrefillAnswer, ReplicaPrefill
from services.edge.metrics import EdgeMetrics

_UNSENT_MOST: Final = 4
"""Of one stream. An agent that reads nothing is not asked for more."""


class Outbox:
    """What is still to be said on one stream besides the answer to its first message."""

    def __init__(self) -> None:
        self._unsent: deque[ReplicaPrefill] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, message: ReplicaPrefill) -> bool:
        """False when there is too much."""
        if self._closed or len(self._unsent) >= _UNSENT_MOST:
            return False
        self._unsent.append(message)
        self._changed.set()
        return True

    def close(self) -> None:
        """The stream ends: nothing more is said."""
        self._closed = True
        self._changed.set()

    async def messages(self) -> AsyncIterator[ReplicaPrefill]:
        """Each once, as it comes, until `close`."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._unsent and not self._closed:
                yield self._unsent.popleft()
            if self._closed:
                return


class PrefillDesk:
    """Which workers can be asked is known from their streams; what to ask for is the caller's to choose."""

    def __init__(self, metrics: EdgeMetrics) -> None:
        self._metrics = metrics
        self._open: dict[str, Outbox] = {}

    @property
    def workers(self) -> frozenset[str]:
        """Ids of those that can be asked now."""
        return frozenset(self._open)

    def ask(self, worker_id: str, request: ReplicaPrefill) -> bool:
        """Ask a worker; False when it cannot be asked now. What becomes of it comes as an answer, or not."""
        outbox = self._open.get(worker_id)
        sent = outbox is not None and outbox.put(request)
        self._metrics.replica_asks.labels("sent" if sent else "unsent").inc()
        return sent

    def answered(self, answers: Sequence[PrefillAnswer]) -> None:
        """A worker's agent says what became of prefills."""
        for answer in answers:
            outcome = "other" if answer.outcome is None else answer.outcome.value
            self._metrics.replica_outcomes.labels(outcome).inc()

    @contextmanager
    def stream(self, worker_id: str, *, takes_prefills: bool) -> Iterator[Outbox]:
        """A stream, for as long as it is open. A newer one of the worker takes its place."""
        outbox = Outbox()
        if takes_prefills:
            self._open[worker_id] = outbox
        try:
            yield outbox
        finally:
            outbox.close()
            if self._open.get(worker_id) is outbox:
                del self._open[worker_id]
