"""The checks at the end of a run find what they are for, and nothing can be known before it can."""

from collections.abc import Callable

import numpy as np
import pytest

from kvcompass.engine_model import EngineRequest
from simulator.errors import SimulationError
from simulator.fleets import FleetOptions, load_fleet
from simulator.laws import check_laws
from simulator.request import Request
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.random_choice import RANDOM
from simulator.router import Rival, Site
from simulator.world import World
from tests.simulation.rival_runs import Listed, ask, text
from tests.simulation.runs import FewFamilies, simulated

FLEET = load_fleet("testbed-14", FleetOptions(shards=2))


def _lose_a_request(world: World) -> None:
    world.records.worker[7] = -1


def _answer_too_soon(world: World) -> None:
    world.records.first_token_us[7] = world.records.submitted_us[7]


def _answer_before_the_prompt_is_computed(world: World) -> None:
    """After the way back, and no prompt of a page or more is computed within a millisecond."""
    place = world.regions[world.records.worker[7]]
    back_us = world.network.least_us(place, world.records.region[7])
    world.records.first_token_us[7] = world.records.submitted_us[7] + back_us + 1_000


def _reuse_the_whole_prompt(world: World) -> None:
    world.records.cached_tokens[7] = world.records.prompt_tokens[7]


def _reuse_part_of_a_block(world: World) -> None:
    world.records.cached_tokens[7] -= 1


def _fail_and_end(world: World) -> None:
    world.records.worker[7] = -1
    world.records.failed += 1


def _end_before_the_beginning(world: World) -> None:
    world.records.finished_us[7] = world.records.first_token_us[7] - 1


def _arrive_in_no_time(world: World) -> None:
    world.records.submitted_us[7] = world.records.arrived_us[7]


def _claim_reuse(world: World) -> None:
    world.records.cached_tokens[7] += 64


def _forget_an_answer(world: World) -> None:
    world.records.answer_tokens[7] -= 1


def _hear_of_a_block_too_many(world: World) -> None:
    world.hosts[3].told_blocks["GPU"] += 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_lose_a_request, "failed, 1 by the records"),
        (_answer_too_soon, "began to be answered before they could"),
        (_answer_before_the_prompt_is_computed, "before their prompts could be computed"),
        (_reuse_the_whole_prompt, "no whole block"),
        (_reuse_part_of_a_block, "no whole block"),
        (_fail_and_end, "failed and ended"),
        (_end_before_the_beginning, "ended before they could"),
        (_arrive_in_no_time, "reached an engine before they could"),
        (_claim_reuse, "cached_tokens"),
        (_forget_an_answer, "answer_tokens"),
        (_hear_of_a_block_too_many, "worker 3"),
    ],
)
def test_a_broken_law_is_found(damage: Callable[[World], None], said: str) -> None:
    world = simulated(FLEET, RANDOM, count=60, rate_per_s=40)
    check_laws(world)
    damage(world)
    with pytest.raises(SimulationError, match=said):
        check_laws(world)


def test_what_a_busy_engine_has_not_told_yet_breaks_no_law() -> None:
    world = simulated(FLEET, RANDOM, count=60, rate_per_s=40)
    _hear_of_a_block_too_many(world)
    world.lost_answers = 1
    """Of the request that follows, which nobody waits for."""
    tokens = np.arange(500, dtype=np.int32)
    assert world.hosts[3].submit(EngineRequest("late", tokens, tokens[:9])) is None
    check_laws(world)


class Loser(Indifferent):
    """Does nothing with its third request."""

    name = "loser"

    def __init__(self, site: Site) -> None:
        self._site = site

    def arrive(self, request: Request) -> None:
        if request.id != 2:
            self._site.dispatch(request, 0)


class Impatient(Indifferent):
    """Sends a reading of region 0's load to region 1 and reads it there a microsecond too soon."""

    name = "impatient"

    def __init__(self, site: Site) -> None:
        self._site = site
        site.begin(0, self._ask)

    def arrive(self, request: Request) -> None:
        self._site.dispatch(request, 0)

    def _ask(self) -> None:
        reading = self._site.load(0)
        way_us = round(1000 * self._site.fleet.plan.wan_ms[0][1])
        self._site.begin(1, self._site.after, way_us - 1, lambda: reading.value)


def _world(rival: Rival) -> World:
    return World(FLEET, FewFamilies(FLEET, count=5, rate_per_s=40, seed=1), rival, seed=1)


def test_a_router_that_loses_a_request_is_found_out() -> None:
    world = _world(Rival("loser", Loser, "nobody"))
    with pytest.raises(SimulationError, match="1 of 5 requests"):
        world.run()
    assert world.now_us == world.records.column("finished_us").max() + 600_000_000


def test_a_pause_in_which_nothing_is_left_to_do_is_waited_for() -> None:
    requests = [ask(row, 5 * 3_600e3 * row, 0, text(row, 100)) for row in range(3)]
    world = World(FLEET, Listed(requests), RANDOM, seed=1)
    world.run()
    assert (world.records.rows, world.records.failed) == (3, 0)


def test_nothing_is_read_before_it_can_be_known() -> None:
    with pytest.raises(AssertionError, match="could not know yet"):
        _world(Rival("impatient", Impatient, "nobody")).run()


def test_only_a_bound_looks_into_engines() -> None:
    with pytest.raises(AssertionError, match="only a bound"):
        _world(RANDOM).engine_now(0)
