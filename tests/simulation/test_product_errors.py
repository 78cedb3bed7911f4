"""An error that is the request's own fault blames nobody, on either side of a way between regions."""

import pytest

from kvcompass.engine_model import EngineConfig
from kvcompass.fleet.view import Standing
from kvcompass.routing.names import PolicyName
from simulator.product import product_rival
from simulator.product.router import ProductRouter
from simulator.router import Rival, Router, Site
from tests.simulation.rival_runs import Run, ask, small_fleet, text

PAGE = 16
ROOM = 100 * PAGE
EVERY_MS = 200.0


@pytest.mark.parametrize("policy", ["kvcompass", "regional", "round_robin"])
def test_a_prompt_that_no_cache_holds_makes_no_edge_suspect_a_worker(policy: PolicyName) -> None:
    fleet = small_fleet(EngineConfig(page_size=PAGE, cache_tokens=ROOM))
    seen: list[list[bool]] = []

    def make(site: Site) -> Router:
        router = product_rival(policy).make(site)
        assert isinstance(router, ProductRouter)

        def look() -> None:
            for edge in router.edges:
                edge.role.fleet.refresh(site.now_us)
                seen.append([each == Standing.SUSPECTED for each in edge.role.fleet.standing])

        for turn in range(1, 24):
            site.begin(0, site.after, round(1e3 * (turn * EVERY_MS - 1.0)), look)
        return router

    requests = [
        ask(row, EVERY_MS * row, row % 3, text(row, ROOM + 1 if row % 2 else PAGE)) for row in range(24)
    ]
    run = Run(Rival(policy, make, "the product"), requests, fleet)
    assert run.world.records.failed == 12
    assert len(seen) == 3 * 23
    assert not any(any(each) for each in seen)
