"""What holds for every rival: nothing is lost, the same seed gives the same run, whatever goes wrong."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kvcompass.engine_model import EngineConfig
from kvcompass.wan import Link
from simulator.request import Request
from simulator.rivals.registry import RIVALS
from tests.simulation.rival_runs import PAGE, Run, ask, small_fleet, text

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
    if name == "prefix_aware":  # which knows two engines
        assert run.world.records.failed == 48 - 4 * 4
    else:
        assert run.world.records.failed == 0
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


def _cut(site: object, a: int, b: int, parted: bool) -> None:
    world = site._site if hasattr(site, "_site") else site
    world.network.set_link(a, b, Link(30.0, jitter_ms=10.0, loss=0.2, partition=parted))  # type: ignore[attr-defined]
