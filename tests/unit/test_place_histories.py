"""A place is given again, and nobody ever takes the new worker's keys for the old one's, nor the other way.

One law over whatever may happen, and planted bugs that it must notice.
"""

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.roles import free_places
from kvcompass.roles.free_places import FreePlaces
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.subscriber_desk import SubscriberDesk
from kvcompass.roles.view_relay import ViewRelay
from tests.models.place_histories import EDGES, SHARDS, World, WrongNameError

_NODES = SHARDS + len(EDGES)
Step = Callable[[World], None]


def _change(what: str, number: int, without: frozenset[int]) -> Step:
    return lambda world: world.change(what, number, without)


def _some_steps(draw: Callable[[int], int]) -> Step:
    """One thing that may happen. `draw(n)`: a number below n."""
    kind = draw(20)
    number = draw(8)
    if kind < 4:
        without = frozenset({draw(_NODES)}) if draw(4) == 0 else frozenset[int]()
        return _change(("add", "remove", "nothing", "add")[draw(4)], number, without)
    if kind < 8:
        times = 1 + draw(8)
        return lambda world: world.bring(times)
    if kind < 11:
        key, tier = draw(3), (1, 2, 0)[draw(3)]
        return lambda world: world.report(number, key, tier)
    if kind < 15:
        times, through = 1 + draw(6), bool(draw(2))
        return lambda world: world.pump(number, times, through_edge=through)
    if kind < 17:
        return World.tick
    if kind == 17:
        both = bool(draw(2))
        return lambda world: world.lose(number, both=both)
    if kind == 18:
        return lambda world: world.catch_up(number)
    newest, restore, save = draw(2) == 0, draw(2) == 0, draw(2) == 0
    if save:
        return lambda world: world.save(number)
    return lambda world: world.restart(number, newest=newest, restore=restore)


def _live(steps: Iterator[Step]) -> World:
    world = World()
    for step in steps:
        step(world)
        world.check()
    return world


@settings(max_examples=60)
@given(st.data())
def test_no_view_ever_names_a_worker_for_a_key_that_it_never_held(data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, 120))
    _live(_some_steps(lambda below: data.draw(st.integers(0, below - 1))) for _ in range(steps))


def _seeded(seed: int, steps: int = 400) -> World:
    chance = random.Random(seed)
    return _live(_some_steps(chance.randrange) for _ in range(steps))


def test_histories_give_places_again_and_refuse_some() -> None:
    """The law above would hold as well if no place were ever given again."""
    worlds = [_seeded(seed) for seed in range(30)]
    assert sum(world.given_again for world in worlds) > 30
    told = "\n".join(reason for world in worlds for reason in world.refused)
    for reason in ("did not acknowledge", "too recently"):
        assert reason in told


def _takes_anything(_self: MaintenanceUnit, _plan: object) -> None:
    """Reused at once."""


def _nobody_holds_it_up(
    right: Callable[..., Any], self: FreePlaces, version: int, _acknowledged: object
) -> Any:
    return right(self, version, {})


def _ends_no_stream(self: SubscriberDesk, plan_version: int, _foreseen: Collection[str]) -> None:
    self._plan_version = plan_version


def _asks_nothing_anew(_self: ViewRelay, _places: Collection[tuple[int, int]]) -> None:
    pass


def _wrong(owner: type, name: str, wrong: Callable[..., Any]) -> AbstractContextManager[object]:
    return mock.patch.object(owner, name, wrong)


def _tells_all(_self: SubscriberDesk, _sequence: int) -> None:
    pass


PLANTED: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "reused at once": lambda: _wrong(MaintenanceUnit, "check_plan", _takes_anything),
    "edges ask nothing anew": lambda: _wrong(ViewRelay, "places_given_again", _asks_nothing_anew),
    "the past is told": lambda: _wrong(SubscriberDesk, "forget_up_to", _tells_all),
}
BEHIND: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "a version too early": lambda: mock.patch.object(free_places, "VERSIONS_EMPTY", 1),
    "streams that fell behind stay": lambda: _wrong(SubscriberDesk, "apply_plan", _ends_no_stream),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    with PLANTED[bug](), pytest.raises(WrongNameError):
        for seed in range(60):
            _seeded(seed)


def _version(world: World, what: str, number: int, *without: str) -> None:
    """A version more for all but those edges; everybody else reads on."""
    world.change(what, number, frozenset(SHARDS + EDGES.index(name) for name in without))
    for _ in range(12):
        world.bring()
        _read(world)


def _read(world: World) -> None:
    world.tick()
    for _ in range(6):
        for edge in range(len(EDGES)):
            world.pump(edge, 1, through_edge=edge == 1)


def _begun() -> World:
    """a-1 holds something, and e-1 follows e-0, which follows the unit like e-2."""
    world = World()
    world.report(1, 1, 1)
    _read(world)
    return world


def _follower_of_a_follower() -> None:
    """e-1 stays where a-1 is known, and e-0, which it follows, where nobody is at its place."""
    world = _begun()
    _version(world, "remove", 1, "e-1")
    _version(world, "add", 0, "e-0")
    for _ in range(4):
        world.report(3, 1, 1)
        _read(world)


def _old_stream() -> None:
    """e-2 stays where a-1 is known, on a stream that began then."""
    world = _begun()
    for what in ("remove", "nothing", "add"):
        _version(world, what, 1 if what == "remove" else 0, "e-2")
    for _ in range(4):
        world.report(3, 1, 1)
        _read(world)


@pytest.mark.parametrize(
    ("bug", "history"),
    [("a version too early", _follower_of_a_follower), ("streams that fell behind stay", _old_stream)],
)
def test_whoever_is_versions_behind_is_kept_from_what_it_would_misread(
    bug: str, history: Callable[[], None]
) -> None:
    history()
    with BEHIND[bug](), pytest.raises(WrongNameError):
        history()
