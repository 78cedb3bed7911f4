"""No policy sees what it could not know: what happens elsewhere changes nothing before it can be told."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kvcompass.engine_events import BlockStored
from kvcompass.engine_model import QueueLoad
from kvcompass.engine_model.cache_events import VRAM
from kvcompass.wan import Link
from simulator.fleet import Fleet
from simulator.product.policies import product_rival
from simulator.reading import Reading
from simulator.request import Request
from simulator.rivals.broadcast import PERIOD_US
from simulator.rivals.chunk_names import chunk_names
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.least_loaded import LEAST_LOADED
from simulator.rivals.registry import RIVALS
from simulator.router import Rival, Router, Site
from tests.simulation.rival_runs import PAGE, Run, ask, small_fleet, text

FAR_MS = 30_000.0
"""One way between regions, though all believe it to be 1 ms: longer than all requests take to arrive."""
HONEST = [name for name, rival in RIVALS.items() if not rival.is_bound]
PRODUCT = ("kvcompass", "regional", "round_robin")
BOUNDS = [name for name, rival in RIVALS.items() if rival.is_bound]


def _requests(elsewhere: int) -> list[Request]:
    """The same requests in region 0, and others elsewhere: of one half of its families or the other.

    Every other one elsewhere is nothing but what its family shares, so that who keeps whole prompts by their
    names finds them in region 0's.
    """
    stream = np.random.Generator(np.random.PCG64(5))
    here = [
        ask(i, 60.0 * i, 0, text(int(stream.integers(60)), 8 * PAGE), text(i, 3 * PAGE), answer=20)
        for i in range(80)
    ]
    stream = np.random.Generator(np.random.PCG64(elsewhere))
    there = [
        ask(
            i,
            float(stream.uniform(0, 4_800)),
            int(stream.integers(1, 3)),
            text(30 * elsewhere + int(stream.integers(30)), (8 + i % 2) * PAGE),
        )
        for i in range(80, 160)
    ]
    return here + there


def _fleet() -> Fleet:
    """Whose plan has the engines' page size, so that the product finds what they hold."""
    fleet = small_fleet(wan_ms=1.0)
    plan = replace(fleet.plan, model=replace(fleet.plan.model, block_size=PAGE))
    return replace(fleet, plan=replace(plan, lengths=replace(plan.lengths, quantum=PAGE)))


def _decided_early(rival: Rival, elsewhere: int) -> list[tuple[int, int, int, int]]:
    """What region 0 decided before anything from elsewhere could be there."""
    run = Run(
        rival,
        _requests(elsewhere),
        _fleet(),
        link_of=lambda a, b: Link(0.5 if a == b else FAR_MS),
    )
    return [one for one in run.dispatched if one[1] == 0 and one[0] < 1000.0 * FAR_MS]


@pytest.mark.parametrize("name", HONEST)
def test_what_happens_elsewhere_changes_no_decision_before_it_can_be_known(name: str) -> None:
    decided = _decided_early(RIVALS[name], 0)
    assert decided == _decided_early(RIVALS[name], 1)
    if name != "chord":  # which asks nodes elsewhere before it decides anything
        assert len(decided) == 80


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("name", PRODUCT)
def test_nor_does_it_change_a_decision_of_the_product(name: str, faithful: bool) -> None:
    rival = product_rival(name, faithful=faithful)
    decided = _decided_early(rival, 0)
    assert decided == _decided_early(rival, 1)
    assert len(decided) > 40, "what goes elsewhere is given to an engine there, later"


class _OneTable(Indifferent):
    """Keeps sessions, by the names of their prompts, in one table for all regions."""

    name = "one_table"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._worker_of: dict[int, int] = {}

    def arrive(self, request: Request) -> None:
        names = chunk_names(request.prompt, PAGE)
        known = (self._worker_of[name] for name in reversed(names) if name in self._worker_of)
        worker = next(known, request.id % self._site.fleet.workers)
        self._remember(names, worker)
        self._site.dispatch(request, worker)

    def _remember(self, names: list[int], worker: int) -> None:
        self._worker_of[names[-1]] = worker

    def refused(self, request: Request, worker: int) -> None:
        self._site.fail(request)


class _OneTableOfTurns(_OneTable):
    """The same, but by what a next turn shares with this one: all but the last chunk."""

    name = "one_table_of_turns"

    def _remember(self, names: list[int], worker: int) -> None:
        self._worker_of[names[-2]] = worker


@pytest.mark.parametrize("router", [_OneTable, _OneTableOfTurns])
def test_a_table_that_regions_share_breaks_that_law(router: type[_OneTable]) -> None:
    rival = Rival(router.name, router, "nobody")
    assert _decided_early(rival, 0) != _decided_early(rival, 1)


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_do_see_what_they_could_not_know(name: str) -> None:
    """Six long prompts come to region 0 while the others idle, or 200 ms after they have got plenty to do."""

    def decided(busy: bool) -> list[tuple[int, int, int, int]]:
        here = [ask(i, 200.0, 0, text(i, 100 * PAGE)) for i in range(6)]
        there = [ask(i, 1.0 if busy else 9_000.0, 1 + i % 2, text(i, 200 * PAGE)) for i in range(6, 18)]
        run = Run(RIVALS[name], here + there, small_fleet(wan_ms=300.0))
        return [one for one in run.dispatched if one[2] < 6]

    idle, busy = decided(False), decided(True)
    assert idle != busy
    assert max(when for when, _, _, _ in busy) < 300_000


@pytest.mark.parametrize("name", ["central_directory", "dynamo", "planetserve"])
def test_what_a_cache_holds_elsewhere_is_known_a_way_later_and_not_before(name: str) -> None:
    """An engine of region 1 says at the beginning that it holds a document; region 0 is asked about it."""
    document = text("document", 200 * PAGE)
    stored = BlockStored(tuple(range(200)), None, document, PAGE, VRAM)

    def make(site: Site) -> Router:
        router = RIVALS[name].make(site)
        site.begin(1, router.cache_events, 2, [stored])
        return router

    def claimed(at_ms: float) -> int:
        question = ask(0, at_ms, 0, document, text("question", 10))
        run = Run(replace(RIVALS[name], make=make), [question], small_fleet(wan_ms=200.0))
        return int(run.column("claimed_tokens")[0])

    assert claimed(199.0) == 0
    assert claimed(201.0 + PERIOD_US / 1000.0) == len(document)


class _Peeking(Indifferent):
    """Reads in one region what an engine of another has just told."""

    name = "peeking"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._told: list[Reading[QueueLoad]] = []
        site.begin(1, self._listen)

    def _listen(self) -> None:
        self._told.append(self._site.load(2))
        self._site.after(1_000, self._listen)

    def arrive(self, request: Request) -> None:
        assert self._told[0].value.waiting == 0  # old enough
        assert self._told[-1].value.waiting == 0
        self._site.dispatch(request, 0)

    def refused(self, request: Request, worker: int) -> None:
        self._site.fail(request)


class _Reaching(_Peeking):
    """Asks an engine of another region."""

    name = "reaching"

    def arrive(self, request: Request) -> None:
        self._site.load(2)
        self._site.dispatch(request, 0)


class _Omniscient(_Peeking):
    """Looks into engines, which is for bounds."""

    name = "omniscient"

    def arrive(self, request: Request) -> None:
        self._site.engine_now(2)
        self._site.dispatch(request, 0)


@pytest.mark.parametrize(
    ("router", "complaint"),
    [
        (_Peeking, "could not know yet"),
        (_Reaching, "from within its region"),
        (_Omniscient, "only a bound"),
    ],
)
def test_a_reading_cannot_be_had_before_its_time(router: type[_Peeking], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        Run(Rival(router.name, router, "nobody"), [ask(0, 500.0, 0, text("any", PAGE))])


def test_loads_told_from_elsewhere_are_a_way_old_and_at_most_a_period_more() -> None:
    ages: list[int] = []

    def watched(site: Site) -> object:
        router = LEAST_LOADED.make(site)
        place = router.arrive

        def arrive(request: Request) -> None:
            way_us = 1000.0 * 40.0
            for seen in router._edges[site.here].told.values():  # type: ignore[attr-defined]
                ages.append(site.now_us - seen.at_us)
                assert way_us <= ages[-1] <= way_us + PERIOD_US
            place(request)

        router.arrive = arrive  # type: ignore[method-assign]
        return router

    requests: Sequence[Request] = [ask(i, 300.0 + 7.0 * i, i % 3, text(i, PAGE)) for i in range(100)]
    Run(Rival("watched", watched, "least_loaded"), requests, small_fleet(wan_ms=40.0))  # type: ignore[arg-type]
    assert max(ages) > 40_000 + 0.8 * PERIOD_US
