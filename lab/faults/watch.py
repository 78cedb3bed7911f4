"""What every process of the fleet says of itself, asked again and again, each by a thread of its own.

A process that is stopped or cut off keeps nobody else from being heard.
"""

import http.client
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from kvcompass.plan.model import Plan
from lab.blueprint import Blueprint
from lab.faults.edge_counts import EdgeCounts, Totals

QUICK_S: Final = 0.15
_CALM_S: Final = 1.0
_TIMEOUT_S: Final = 1.0
_KEPT: Final = 64
"""Answers of each process: 10 s of quick asking."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """One answer."""

    at: float
    """`time.monotonic()` when it was asked for: what it tells is younger."""
    told: Mapping[str, Any] | None
    """JSON; None when it did not answer."""


Sight = Mapping[str, tuple[Glimpse, ...]]
"""By process, its latest answers, the newest last."""


class Watch:
    """Use as a context manager."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._period_s = _CALM_S
        pages = _pages(blueprint.plan, blueprint.ops_addresses)
        self._seen: dict[str, deque[Glimpse]] = {name: deque(maxlen=_KEPT) for name in pages}
        self._edges = {edge.id for edge in blueprint.plan.edges}
        self._counts = EdgeCounts()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(name, *page), daemon=True, name=f"watch-{name}")
            for name, page in pages.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2 * _TIMEOUT_S)

    @contextmanager
    def closely(self) -> Iterator[None]:
        """Asks often within the block."""
        self._period_s = QUICK_S
        try:
            yield
        finally:
            self._period_s = _CALM_S

    def sight(self) -> Sight:
        """All that is kept, as it is now."""
        with self._lock:
            return {name: tuple(glimpses) for name, glimpses in self._seen.items()}

    def says_ready(self, edge: str) -> bool:
        """Whether a balancer would send to the edge."""
        with self._lock:
            newest = self._seen[edge][-1] if self._seen[edge] else None
        return newest is not None and newest.told is not None and newest.told["readiness"]["ready"] is True

    @property
    def totals(self) -> Totals:
        """Counted so far by all edges."""
        with self._lock:
            return self._counts.totals

    def _ask_on(self, name: str, address: str, path: str) -> None:
        connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
        while not self._stop.is_set():
            asked = time.monotonic()
            told = _ask(connection, path)
            with self._lock:
                self._seen[name].append(Glimpse(asked, told))
                if name in self._edges and told is not None:
                    self._counts.take(name, told)
            self._stop.wait(max(0.0, self._period_s - (time.monotonic() - asked)))
        connection.close()


def _pages(plan: Plan, ops: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Where each process tells the most: address and path."""
    pages = {name: (address, "/health") for name, address in ops.items()}
    pages |= {edge.id: (edge.address, "/v1/kvcompass/state") for edge in plan.edges}
    return pages | {
        worker.id: (worker.url.removeprefix("http://"), "/server_info")
        for worker in plan.workers
        if worker.sharing_group == "default"
    }


def _ask(connection: http.client.HTTPConnection, path: str) -> Mapping[str, Any] | None:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        told = json.loads(body) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()
        return None
    return told if isinstance(told, dict) else None
