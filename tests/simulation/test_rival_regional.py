"""SGLang's router in each region, and SkyWalker, which pushes on when a region is full."""

import numpy as np

from kvcompass.engine_model import EngineConfig
from simulator.request import Request
from simulator.rivals.clairvoyant import CLAIRVOYANT
from simulator.rivals.least_loaded import LEAST_LOADED
from simulator.rivals.prefix_aware import BALANCE_ABS, PREFIX_AWARE
from simulator.rivals.skywalker import PROBE_US, PUSH_QUEUE_MAX, PUSHES_A_PROBE, SKYWALKER, SkyWalker
from simulator.router import Rival, Site
from tests.simulation.rival_runs import PAGE, Run, ask, small_fleet, text


def _families(count: int, gap_ms: float, regions: int = 3, families: int = 4) -> list[Request]:
    """Every region has its own families of prompts."""
    return [
        ask(
            i,
            gap_ms * i,
            i % regions,
            text((i % regions, i // regions % families), 20 * PAGE),
            text(i, 2 * PAGE),
            answer=10,
        )
        for i in range(count)
    ]


def _burst(count: int = 40, gap_ms: float = 20.0) -> list[Request]:
    """All in region 0, which has two of six engines: too much for it, little for the world."""
    return [ask(i, 1_000.0 + gap_ms * i, 0, text(i, 20 * PAGE)) for i in range(count)]


def test_prefix_aware_reuses_what_a_region_shares_and_never_leaves_it() -> None:
    run = Run(PREFIX_AWARE, _families(120, 150.0))
    assert run.crossed == 0.0
    assert run.reused == (120 - 12) * 20 * PAGE
    assert np.bincount(run.workers, minlength=6).min() > 0
    assert (run.column("claimed_tokens") <= run.column("cached_tokens")).all()


def test_prefix_aware_leaves_other_regions_idle_while_one_is_full() -> None:
    regional, worldwide = Run(PREFIX_AWARE, _burst()), Run(LEAST_LOADED, _burst())
    assert set(regional.workers) == {0, 1}
    assert np.percentile(regional.first_token_ms, 90) > 1.3 * np.percentile(worldwide.first_token_ms, 90)


def test_prefix_aware_takes_the_least_loaded_once_loads_are_out_of_balance() -> None:
    """One family's holder is taken until it has 65 more in flight than the other worker."""
    warm = ask(0, 0.0, 0, text("family", 20 * PAGE))
    rest = [ask(i, 2_000.0, 0, text("family", 20 * PAGE), text(i, PAGE)) for i in range(1, 80)]
    run = Run(PREFIX_AWARE, [warm, *rest])
    holder = run.workers[0]
    assert [worker == holder for worker in run.workers].index(False) == 1 + BALANCE_ABS + 1


class _Watched(SkyWalker):
    """Notes what waited at each engine when its balancer last asked, and who has queued a request."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.waited: dict[int, int] = {}
        self.since: dict[int, int] = {}
        self.pushes = 0
        self.queued: dict[int, list[int]] = {}
        self.passed: dict[tuple[int, int], int] = {}
        """From a region to another since it last heard of it."""

    def _hear(self, source, status) -> None:  # type: ignore[no-untyped-def]
        self.passed[self._site.here, source] = 0
        super()._hear(source, status)

    def _to_region(self, balancer, waiting) -> bool:  # type: ignore[no-untyped-def]
        if not super()._to_region(balancer, waiting):
            return False
        way = self._site.here, balancer.went[waiting.request.id]
        self.passed[way] += 1
        assert self.passed[way] <= PUSH_QUEUE_MAX + 1
        return True

    def _enqueue(self, waiting) -> None:  # type: ignore[no-untyped-def]
        self.queued.setdefault(waiting.request.id, []).append(self._site.here)
        super()._enqueue(waiting)

    def _probe(self) -> None:
        for worker in self._balancers[self._site.here].workers:
            self.waited[worker] = self._site.load(worker).value.waiting
            self.since[worker] = 0
        super()._probe()

    def _to_replica(self, balancer, waiting) -> None:  # type: ignore[no-untyped-def]
        before = dict(balancer.load)
        super()._to_replica(balancer, waiting)
        (pushed,) = [worker for worker in before if balancer.load[worker] != before[worker]]
        assert self.waited[pushed] == 0
        self.since[pushed] = self.since.get(pushed, 0) + 1
        assert self.since[pushed] <= PUSHES_A_PROBE
        self.pushes += 1


def test_skywalker_pushes_only_where_nothing_waited_when_it_last_asked() -> None:
    requests = [ask(i, 9.0 * i, i % 2, text(i % 30, 15 * PAGE), text(i, 3 * PAGE)) for i in range(200)]
    run = Run(Rival("skywalker", _Watched, "watched"), requests)
    assert run.router.pushes == 200
    waits = run.column("submitted_us") - run.column("arrived_us")
    assert waits.max() > 300_000  # some waited in a balancer


def test_skywalker_holds_no_request_back_that_its_replicas_have_time_for() -> None:
    """Prompts of a page at 20 requests a second and replica, at random: each is computed in some 5 ms."""
    stream = np.random.Generator(np.random.PCG64(5))
    at_ms = np.cumsum(stream.exponential(1e3 / (20 * 6), 900))
    requests = [ask(i, at_ms[i], i % 3, text(i, PAGE), answer=1) for i in range(900)]
    run = Run(SKYWALKER, requests)
    waits_us = run.column("submitted_us") - run.column("arrived_us")
    assert np.percentile(waits_us, 90) < PROBE_US
    assert run.crossed < 0.05


def test_skywalker_keeps_to_a_region_that_has_room_and_reuses_there() -> None:
    run = Run(SKYWALKER, _families(120, 150.0))
    assert run.crossed == 0.0
    assert run.reused >= 0.95 * (120 - 12) * 20 * PAGE


def test_skywalker_pushes_what_a_full_region_cannot_take_to_idle_ones() -> None:
    run, regional = Run(SKYWALKER, _burst(80)), Run(PREFIX_AWARE, _burst(80))
    assert 0.2 < run.crossed < 0.9
    assert np.percentile(run.first_token_ms, 95) < 0.8 * np.percentile(regional.first_token_ms, 95)


def test_skywalker_pushes_to_a_region_no_more_than_it_said_it_had_room_for() -> None:
    requests = [ask(i, 1_000.0, 0, text(i, 20 * PAGE)) for i in range(200)]
    run = Run(Rival("skywalker", _Watched, "watched"), requests)
    assert run.crossed > 0.2


def test_skywalker_does_not_pass_on_what_it_was_passed() -> None:
    """Regions fill up one after the other: a request is queued where it came from and once more at most."""
    requests = [ask(i, 12.0 * i, i // 60, text(i, 20 * PAGE)) for i in range(180)]
    run = Run(Rival("skywalker", _Watched, "watched"), requests)
    queued = run.router.queued
    assert max(len(places) for places in queued.values()) == 2
    assert all(places[-1] == run.regions[run.workers[row]] for row, places in queued.items())
    later = [places[1] for places in queued.values() if len(places) > 1]
    assert len(set(later)) == 3


def test_skywalker_sends_prompts_away_from_their_holder_because_something_waits_there() -> None:
    """A long document is asked about more often than its holder has an empty queue."""
    requests = [
        ask(i, 25.0 * i, 0, text("document", 150 * PAGE), text(i, 2 * PAGE), answer=2) for i in range(60)
    ]
    engine = EngineConfig(page_size=PAGE)
    skywalker, best = (Run(rival, requests, small_fleet(engine)) for rival in (SKYWALKER, CLAIRVOYANT))
    assert skywalker.reused < best.reused
    assert skywalker.first_token_ms.mean() > best.first_token_ms.mean()
