"""What engines tell of their blocks is, name by name, what their caches hold in the end."""

from collections import Counter
from collections.abc import Sequence

import pytest

from kvcompass.engine_events import BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model import EngineConfig, Scheduling
from kvcompass.engine_model.cache_events import DRAM, VRAM
from simulator.rivals.random_choice import RandomChoice
from simulator.router import Rival, Site
from tests.simulation.rival_runs import PAGE, small_fleet
from tests.simulation.runs import simulated

Held = set[tuple[str | None, int | str]]


class Listener(RandomChoice):
    """Keeps the names of all blocks that each worker tells of, by tier."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.held: list[Held] = [set() for _ in range(site.fleet.workers)]
        self.events = Counter[type]()

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        held = self.held[worker]
        for event in events:
            self.events[type(event)] += 1
            if isinstance(event, BlockStored):
                blocks = {(event.medium, name) for name in event.hashes}
                assert len(blocks) == len(event.hashes)
                assert not blocks & held
                held |= blocks
            elif isinstance(event, BlockRemoved):
                blocks = {(event.medium, name) for name in event.hashes}
                assert len(blocks) == len(event.hashes)
                assert blocks <= held
                held -= blocks


@pytest.mark.parametrize("scheduling", Scheduling)
@pytest.mark.parametrize("host_pages", [0, 120])
def test_told_names_are_the_names_that_are_held(scheduling: Scheduling, host_pages: int) -> None:
    engine = EngineConfig(
        page_size=PAGE,
        cache_tokens=60 * PAGE,
        host_cache_tokens=host_pages * PAGE,
        scheduling=scheduling,
    )
    world = simulated(small_fleet(engine), Rival("listener", Listener, "chance"), count=400, rate_per_s=60)
    router = world.router
    assert isinstance(router, Listener)
    assert router.events[BlockRemoved] > 50
    for host, told in zip(world.hosts, router.held, strict=True):
        held: Held = set()
        for run in host.engine.cache._tree:
            held |= {(VRAM, name) for name in run.names[: run.vram]}
            held |= {(DRAM, name) for name in run.names[: run.dram]}
        assert told == held
        assert {medium for medium, _ in held} == ({VRAM, DRAM} if host_pages else {VRAM})
