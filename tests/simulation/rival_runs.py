"""Small worlds for the tests of rivals: the example plan's three regions of two workers, listed requests."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model import EngineConfig
from simulator.fleet import Fleet
from simulator.network import LinkOf
from simulator.request import Request
from simulator.router import Rival, Router, Site
from simulator.world import World
from tests.models.example_plan import THREE_REGIONS

PAGE = 64
LOCAL_MS = 0.5


def small_fleet(engine: EngineConfig | None = None, wan_ms: float | None = None) -> Fleet:
    """Three regions, six workers; `wan_ms`: one way between any two regions instead of the plan's."""
    plan = THREE_REGIONS
    if wan_ms is not None:
        rows = tuple(tuple(LOCAL_MS if a == b else wan_ms for b in range(3)) for a in range(3))
        plan = replace(plan, wan_ms=rows)
    config = engine or EngineConfig(page_size=PAGE)
    return Fleet("small", plan, tuple(config for _ in plan.workers), (0.5, 0.3, 0.2))


def text(name: object, tokens: int) -> NDArray[np.int32]:
    """Tokens that are the same for the same name and share nothing with those of any other."""
    seed = np.random.SeedSequence(list(repr(name).encode()))
    return np.random.Generator(np.random.PCG64(seed)).integers(1, 1 << 30, tokens, dtype=np.int32)


def ask(row: int, at_ms: float, region: int, *parts: NDArray[np.int32], answer: int = 2) -> Request:
    """A request whose prompt is these parts, one after the other."""
    return Request(row, round(1000 * at_ms), region, np.concatenate(parts), text(("answer", row), answer))


class Listed:
    """Requests in the order of their arrival."""

    label = "listed"

    def __init__(self, requests: Sequence[Request]) -> None:
        self._left: Iterator[Request] = iter(sorted(requests, key=lambda request: request.arrives_us))

    def next(self) -> Request | None:
        return next(self._left, None)

    def ended(self, request: Request, now_us: int) -> Request | None:
        return None


class SpySite:
    """A site that notes what is dispatched: (when, where, request, worker)."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.dispatched: list[tuple[int, int, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def dispatch(self, request: Request, worker: int, *more: Any) -> None:
        self.dispatched.append((self._site.now_us, self._site.here, request.id, worker))
        self._site.dispatch(request, worker, *more)


class Run:
    """A rival's run to its end."""

    def __init__(
        self,
        rival: Rival,
        requests: Sequence[Request],
        fleet: Fleet | None = None,
        *,
        seed: int = 1,
        link_of: LinkOf | None = None,
    ) -> None:
        def make(site: Site) -> Router:
            self.spy = SpySite(site)
            self.router: Any = rival.make(self.spy)  # type: ignore[arg-type]
            return self.router  # type: ignore[no-any-return]

        self.fleet = fleet or small_fleet()
        self.world = World(
            self.fleet, Listed(requests), replace(rival, make=make), seed=seed, link_of=link_of
        )
        self.world.run()
        self.dispatched = self.spy.dispatched
        self.regions = [self.fleet.region_of(worker) for worker in range(self.fleet.workers)]

    def column(self, name: str) -> NDArray[np.int64]:
        return self.world.records.column(name)

    @property
    def workers(self) -> list[int]:
        """Who answered each request."""
        return self.column("worker").tolist()

    @property
    def first_token_ms(self) -> NDArray[np.float64]:
        return (self.column("first_token_us") - self.column("arrived_us")) / 1000.0

    @property
    def reused(self) -> int:
        """Tokens."""
        return int(self.column("cached_tokens").sum())

    @property
    def crossed(self) -> float:
        """Share of the requests that another region answered."""
        places = [self.regions[worker] for worker in self.workers]
        return float(np.mean(np.array(places) != self.column("region")))
