"""The way back: what a parted way keeps from an edge comes with what gets through."""

from functools import partial

from kvcompass.wan import Link
from simulator.clock import Priority
from simulator.request import Request
from simulator.rivals.indifferent import Indifferent
from simulator.router import Rival, Site
from simulator.world import World
from tests.simulation.rival_runs import Listed, ask, small_fleet, text

WAY_MS = 30.0
FLEET = small_fleet(wan_ms=WAY_MS)
ABROAD = next(worker for worker in range(FLEET.workers) if FLEET.region_of(worker) == 1)


class Abroad(Indifferent):
    """Sends everything to one worker of region 1, and notes what its edge hears."""

    name = "abroad"

    def __init__(self, site: Site) -> None:
        self._site = site
        self.heard: list[tuple[str, int]] = []

    def arrive(self, request: Request) -> None:
        self._site.dispatch(request, ABROAD)

    def first_token(self, request: Request, worker: int) -> None:
        self.heard.append(("first token", self._site.now_us))

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        self.heard.append(("end", self._site.now_us))


def test_an_answer_whose_first_token_found_the_way_cut_begins_when_it_gets_home() -> None:
    """The prefill of 1,000 tokens ends while nothing gets back, the last of 60 tokens after that."""
    requests = [ask(0, 0.0, 0, text("prompt", 1_000), answer=60)]
    world = World(FLEET, Listed(requests), Rival("abroad", Abroad, "nobody"), seed=1)

    def back(parted: bool) -> None:
        world.network.set_link(1, 0, Link(WAY_MS, partition=parted))

    world.clock.at(50_000, Priority.TIMER, partial(back, True))
    world.clock.at(400_000, Priority.TIMER, partial(back, False))
    world.run()
    records, router = world.records, world.router
    assert isinstance(router, Abroad)
    assert records.failed == 0
    ended_us = records.finished_us[0]
    assert ended_us > 400_000
    assert records.first_token_us[0] == ended_us
    assert router.heard == [("first token", ended_us), ("end", ended_us)]
