"""What holds for every rival: nothing is lost, the same seed gives the same run, whatever goes wrong."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kvcompass.engine_model import EngineConfig
from kvcompass.wan import Link
from simulator.request import Request
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.registry import RIVALS
from simulator.router import Rival, Site
from tests.simulation.rival_runs import PAGE, Run, ask, small_fleet, text

ROOT = Path(__file__).parents[2]
COLUMNS = ("worker", "submitted_us", "first_token_us", "finished_us", "cached_tokens", "claimed_tokens")


def _busy(count: int = 120, gap_ms: float = 15.0) -> list[Request]:
    stream = np.random.Generator(np.random.PCG64(11))
    return [
        ask(
            i,
            gap_ms * i,
            int(stream.integers(3)),
            text(int(stream.integers(5)), 12 * PAGE),
            text(i, int(stream.integers(1, 8 * PAGE))),
            answer=int(stream.integers(1, 60)),
        )
        for i in range(count)
    ]


def test_names_are_those_of_the_registry() -> None:
    assert [rival.name for rival in RIVALS.values()] == list(RIVALS)
    assert [name for name, rival in RIVALS.items() if rival.is_bound] == ["oracle", "clairvoyant"]
    assert all(rival.follows for rival in RIVALS.values())
    rows = (ROOT / "docs" / "reproduction" / "rivals.md").read_text("utf-8")
    assert [name for name in RIVALS if f"\n| `{name}` |" not in rows] == [], "each has its row"


@pytest.mark.parametrize("name", RIVALS)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    one, other = (Run(RIVALS[name], _busy(), seed=3) for _ in range(2))
    assert one.router.name == name
    assert one.world.records.failed == 0
    for column in COLUMNS:
        assert np.array_equal(one.column(column), other.column(column))


@pytest.mark.parametrize("name", RIVALS)
def test_engines_that_refuse_cost_no_request_that_another_would_take(name: str) -> None:
    """Each of six engines takes two at a time, and twelve come at once."""
    fleet = small_fleet(EngineConfig(page_size=PAGE, max_queued=1, max_running=1), wan_ms=5.0)
    together = [ask(i, 9_000.0 * (i // 12), 0, text("same", 40 * PAGE), text(i, PAGE)) for i in range(48)]
    run = Run(RIVALS[name], together, fleet)
    failed = run.world.records.failed
    if RIVALS[name].regional:
        assert failed == 48 - 4 * 4, "region 0 has two engines, and its router tries both"
    else:
        assert failed == 0, "try each worker once, then `Site.fail`; see `Refusals`"
    if name in ("consistent_hash", "chord"):  # which think of one for all of them
        assert run.column("attempts").max() >= 6


@pytest.mark.parametrize("name", RIVALS)
def test_lossy_shaking_and_cut_links_lose_no_request_that_can_be_answered(name: str) -> None:
    """The way between region 0 and the others is cut for a while; regions 1 and 2 lose and shake."""

    def link(a: int, b: int) -> Link:
        return Link(0.5) if a == b else Link(30.0, jitter_ms=10.0, loss=0.2)

    requests = _busy()
    rival = RIVALS[name]

    def make(site: object) -> object:
        router = rival.make(site)  # type: ignore[arg-type]
        for at_ms, parted in ((400, True), (2_900, False)):
            for other in (1, 2):
                for a, b in ((0, other), (other, 0)):
                    change = partial(_cut, site, a, b, parted)
                    site.begin(0, site.after, 1000 * at_ms, change)  # type: ignore[attr-defined]
        return router

    run = Run(replace(rival, make=make), requests, small_fleet(wan_ms=30.0), link_of=link)  # type: ignore[arg-type]
    ended = (run.column("finished_us") > 0).sum()
    assert ended + run.world.records.failed == len(requests)
    assert ended >= len(requests) // 2


LATER_MS = 200_000.0


def _given(rival: Rival, before: int, cramped: int | None = None) -> list[int]:
    """How many of 60 short requests each worker of an idle fleet gets, after `before` long ones.

    All prompts are different. The cache of `cramped` has no room for a long one: what it is given of these
    never gets an answer, and the others answer theirs.
    """
    fleet = small_fleet()
    engines = tuple(
        replace(engine, cache_tokens=20 * PAGE) if worker == cramped else engine
        for worker, engine in enumerate(fleet.engines)
    )
    long = [ask(i, 500.0 * i, 0, text(("long", i), 40 * PAGE)) for i in range(before)]
    short = [ask(before + i, LATER_MS + 500.0 * i, 0, text(("short", i), 4 * PAGE)) for i in range(60)]
    run = Run(rival, long + short, replace(fleet, engines=engines))
    assert (run.world.records.failed > 0) == (before > 0), "what is lost is of the long ones"
    return [run.workers[before:].count(worker) for worker in range(fleet.workers)]


@pytest.mark.parametrize("name", RIVALS)
def test_who_lost_answers_is_given_requests_as_before(name: str) -> None:
    usual = _given(RIVALS[name], 0)
    worker = usual.index(max(usual))
    after = _given(RIVALS[name], 120, worker)[worker]
    assert after >= usual[worker] / 3, (
        "what is counted of a request ends with `finished`, `lost` and `refused` alike"
    )


class _Forgetful(Indifferent):
    """The least of its own requests in flight, of which it never takes off those that were lost."""

    name = "forgetful"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._in_flight = [0] * site.fleet.workers

    def arrive(self, request: Request) -> None:
        worker = min(
            range(len(self._in_flight)), key=lambda one: (self._in_flight[one], (one + request.id) % 6)
        )
        self._in_flight[worker] += 1
        self._site.dispatch(request, worker)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        self._in_flight[worker] -= 1

    def refused(self, request: Request, worker: int) -> None:
        self._site.fail(request)


def test_counts_that_lost_answers_leave_break_that_law() -> None:
    rival = Rival(_Forgetful.name, _Forgetful, "nobody")
    assert _given(rival, 0) == [10] * 6
    assert _given(rival, 120, cramped=0)[0] == 0


def _cut(site: object, a: int, b: int, parted: bool) -> None:
    world = site._site if hasattr(site, "_site") else site
    world.network.set_link(a, b, Link(30.0, jitter_ms=10.0, loss=0.2, partition=parted))  # type: ignore[attr-defined]
