"""A fleet is true only when every copy is equal to what its original was a moment ago."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from lab.faults.fault_fleet import FILLER, fault_fleet, roster_of
from lab.faults.truth import SLACK_S, Expected, untrue
from lab.faults.watch import Glimpse, Sight
from lab.ports import LoopbackPorts

NOW = 100.0
Told = dict[str, dict[str, Any]]


ROSTER = roster_of(fault_fleet(LoopbackPorts(random.Random(7)), keys=100, keys_max=100))


def holdings(worker: str, shard: int) -> dict[str, Any]:
    return {"keys": 3, "digest": f"{worker} {shard}"}


def whole() -> Told:
    """What the processes of a fleet tell when all is well."""
    told: Told = {}
    for unit, shard in ROSTER.units.items():
        details = {
            "shard": shard,
            "epoch": 7,
            "sequence": 40,
            "digest": f"table {shard}",
            "is_busy": False,
            "holdings": {worker: holdings(worker, shard) for worker in ROSTER.agents},
        }
        told[unit] = {"state": "serving", "details": details}
    for worker, agent in ROSTER.agents.items():
        told.setdefault(agent, {"state": "serving", "details": {}})["details"][worker] = {
            "state": "exact",
            "blocks": 9,
            "holdings": {str(shard): holdings(worker, shard) for shard in ROSTER.units.values()},
        }
    for worker in ROSTER.engines:
        told[worker] = {"kvcompass_mock": {"resident_blocks": 9}}
    for edge in ROSTER.edges:
        told[edge] = {
            "readiness": {"ready": True, "reasons": []},
            "shards": [
                {
                    "shard": shard,
                    "state": "exact",
                    "unit_epoch": 7,
                    "applied_sequence": 40,
                    "digest": f"table {shard}",
                }
                for shard in ROSTER.units.values()
            ],
            "workers": [{"worker": worker, "standing": "known"} for worker in ROSTER.agents],
        }
    return told


def seen(*moments: tuple[float, Told]) -> Sight:
    """What was told at each moment, in order."""
    return {name: tuple(Glimpse(at, told.get(name)) for at, told in moments) for name in whole()}


def judged(told: Told, *, down: frozenset[str] = frozenset(), since: float = NOW - 1.0) -> list[str]:
    return untrue(ROSTER, seen((NOW, told)), Expected(since, down))


def test_a_whole_fleet_is_true() -> None:
    assert judged(whole()) == []


def edit(*path: Any, to: Any) -> Callable[[Told], None]:
    def change(told: Told) -> None:
        place: Any = told
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edit("unit-1", "state", to="refilling"), "unit-1 is refilling"),
        (edit("unit-0", "details", "is_busy", to=True), "unit-0 is changing its tables"),
        (
            edit("unit-0", "details", "holdings", "worker-eu-2", to={"keys": 3, "digest": "other"}),
            "unit-0 has 3 keys of worker-eu-2, and not what agent-eu says it holds",
        ),
        (
            edit("unit-1", "details", "holdings", "filled-us", to={"keys": 0, "digest": "0"}),
            "unit-1 has 0 keys of filled-us, and not what filler says it holds",
        ),
        (edit("agent-us", "details", "worker-us-1", "state", to="partial"), "worker-us-1 is partial"),
        (
            edit("worker-asia-1", "kvcompass_mock", "resident_blocks", to=8),
            "agent-asia knows 9 blocks of worker-asia-1, and not what the engine holds",
        ),
        (edit("edge-us-2", "readiness", to={"ready": False, "reasons": ["draining"]}), "not ready: draining"),
        (edit("edge-eu", "shards", 1, "state", to="stale"), "edge-eu: shard 1 is stale"),
        (edit("edge-eu", "shards", 1, "unit_epoch", to=6), "edge-eu: shard 1 is at 40"),
        (edit("edge-asia", "shards", 0, "applied_sequence", to=39), "edge-asia: shard 0 is at 39"),
        (edit("edge-asia", "shards", 0, "digest", to="other"), "edge-asia: shard 0 is at 40"),
        (edit("edge-us", "workers", 0, "standing", to="unknown"), "edge-us: the load of worker-us-1"),
    ],
)
def test_whatever_differs_is_named(change: Callable[[Told], None], says: str) -> None:
    told = whole()
    change(told)
    (said,) = judged(told)
    assert says in said


@pytest.mark.parametrize("name", ["unit-0", "agent-asia", "edge-eu"])
def test_who_does_not_answer_is_not_true(name: str) -> None:
    told = whole()
    del told[name]
    assert f"{name} does not answer" in judged(told)


def test_an_engine_that_does_not_answer_proves_nothing() -> None:
    told = whole()
    del told["worker-us-1"]
    assert judged(told) == ["agent-us knows 9 blocks of worker-us-1, and not what the engine holds"]


def test_what_was_told_before_is_no_evidence() -> None:
    assert judged(whole(), since=NOW - 1.0) == []
    assert judged(whole(), since=NOW + 0.1) != []


def moved() -> Told:
    """All units and views one group later, and a worker that holds another key."""
    told = copy.deepcopy(whole())
    for unit, shard in ROSTER.units.items():
        edit(unit, "details", "sequence", to=41)(told)
        edit(unit, "details", "digest", to=f"table {shard} moved")(told)
    return told


@pytest.mark.parametrize("behind_s", [0.0, 0.2, 0.9 * SLACK_S, 1.1 * SLACK_S])
def test_a_view_may_be_as_far_behind_as_news_travels(behind_s: float) -> None:
    sight = seen((NOW - behind_s, whole()), (NOW, moved()))
    views_behind = untrue(ROSTER, sight, Expected(NOW - 10.0))
    assert (views_behind == []) == (behind_s <= SLACK_S)
    assert untrue(ROSTER, sight, Expected(NOW - behind_s / 2)) != [] or behind_s == 0.0


@pytest.mark.parametrize("down", ["worker-us-1", "agent-us", FILLER])
def test_nothing_may_be_known_of_a_worker_that_is_gone(down: str) -> None:
    told = whole()
    gone = [worker for worker, agent in ROSTER.agents.items() if down in (worker, agent)]
    told.pop(down)
    said = judged(told, down=frozenset({down}))
    assert len(said) == len(gone) * len(ROSTER.units)
    assert all("which is gone" in sentence for sentence in said)
    for unit in ROSTER.units:
        for worker in gone:
            edit(unit, "details", "holdings", worker, "keys", to=0)(told)
    assert judged(told, down=frozenset({down})) == []


@pytest.mark.parametrize("down", ["unit-0", "edge-us"])
def test_nothing_is_asked_of_a_unit_or_an_edge_that_is_down(down: str) -> None:
    told = whole()
    del told[down]
    assert judged(told, down=frozenset({down})) == []
