"""With linear prefills each worker of a random policy is an M/G/1 queue, and few wait at low load."""

from dataclasses import replace

import numpy as np
import pytest

from kvcompass.engine_model import EngineConfig, EngineTiming
from simulator.fleet import Fleet
from simulator.fleets import load_fleet
from simulator.rivals.least_loaded import LEAST_LOADED
from simulator.rivals.random_choice import RANDOM
from simulator.world import World
from tests.simulation.runs import FewFamilies

BETA_MS = 0.1
LONGEST = 1_200
MEAN_S = BETA_MS * (LONGEST + 1) / 2 / 1e3
"""Of a prefill: prompts are of 1 to LONGEST tokens, each as likely, and share nothing."""
SQUARE_S2 = (BETA_MS / 1e3) ** 2 * (LONGEST + 1) * (2 * LONGEST + 1) / 6
"""Mean of its square."""


def linear_fleet(workers: int, regions: int) -> Fleet:
    fleet = load_fleet(f"scale-{workers}x{regions}")
    timing = EngineTiming(BETA_MS, 0.0, 10.0, 0.0)
    engine = EngineConfig(page_size=64, cache_tokens=64_000, max_queued=1 << 20, timing=timing)
    return replace(fleet, engines=(engine,) * workers)


def waits_s(world: World) -> np.ndarray:
    """Of every request, between reaching its engine and the start of its prefill."""
    records, fleet = world.records, world.fleet
    place = np.array(world.regions)[records.column("worker")]
    way_us = np.array([[round(1e3 * ms) for ms in row] for row in fleet.plan.wan_ms])
    back_us = way_us[place, records.column("region")]
    prefill_us = np.rint(1e3 * BETA_MS * records.column("prompt_tokens")).astype(np.int64)
    in_engine_us = records.column("first_token_us") - back_us - records.column("submitted_us")
    waited_us = in_engine_us - prefill_us
    assert (waited_us >= 0).all()
    assert records.column("cached_tokens").sum() == 0
    return waited_us / 1e6


def run(fleet: Fleet, rival: object, *, load: float, count: int) -> World:
    source = FewFamilies(
        fleet,
        count=count,
        rate_per_s=load * fleet.workers / MEAN_S,
        seed=4,
        shared=0,
        own=LONGEST,
        answer=1,
    )
    world = World(fleet, source, rival, seed=4)  # type: ignore[arg-type]
    world.run()
    return world


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_random_is_m_g_1(load: float) -> None:
    fleet = linear_fleet(6, 3)
    waited_s = waits_s(run(fleet, RANDOM, load=load, count=30_000))[2_000:]
    rate_per_s = load / MEAN_S
    expected_s = rate_per_s * SQUARE_S2 / (2 * (1 - load))
    """Pollaczek and Khinchine."""
    assert waited_s.mean() == pytest.approx(expected_s, rel=0.05)
    assert (waited_s > 0).mean() == pytest.approx(load, rel=0.05)


def test_nobody_waits_below_half_the_capacity_with_least_loaded() -> None:
    waited_s = waits_s(run(linear_fleet(32, 1), LEAST_LOADED, load=0.45, count=8_000))
    assert waited_s.mean() < 0.01 * MEAN_S
    assert (waited_s > 0.001).mean() < 0.02
