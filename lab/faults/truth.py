"""Whether all views say what the units' tables say, and those what the workers hold: compared by digest.

Nothing is asked here; what was told is compared. Requests go on meanwhile and news travels for as long as the
network takes, so a copy is true when it is equal to what its original was within the last `SLACK_S`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lab.faults.watch import Glimpse, Sight
from services.maintenance.unit_state import UnitState
from services.runtime.agreement import Agreement, table_is_held, view_and_table

HOPS: Final = 3
"""From an engine over its agent and a unit to an edge.

A copy may have agreed with what its original was just before it changed. Where all agreed once, and then
again by what was told after that, the first hop was true the first time; so it takes `HOPS` rounds to know
that all are."""
SLACK_S: Final = 1.0
"""An engine's event crosses two oceans before an edge knows it: 0.3 s, and the rest for the asking."""


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is who in the fleet."""

    edges: tuple[str, ...]
    units: Mapping[str, int]
    """Shard of each."""
    agents: Mapping[str, str]
    """Worker -> the process that reports it."""
    engines: tuple[str, ...]
    """Workers that have an engine."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is to be true."""

    since: float
    """`time.monotonic()`; what was told before is no evidence."""
    down: frozenset[str] = field(default_factory=frozenset)
    """Processes that are not there: nothing must be known of a worker without its engine or its agent."""


def untrue(roster: Roster, sight: Sight, expected: Expected) -> list[str]:
    """One sentence for each thing that is not as it should be; empty when all views are true."""
    return [
        *_units(roster, sight, expected),
        *_agents(roster, sight, expected),
        *_edges(roster, sight, expected),
    ]


def _newest(sight: Sight, name: str, since: float) -> Glimpse | None:
    glimpses = sight[name]
    if not glimpses or glimpses[-1].told is None or glimpses[-1].at < since:
        return None
    return glimpses[-1]


def _around(sight: Sight, name: str, glimpse: Glimpse, since: float) -> Iterator[Mapping[str, Any]]:
    """What the process told not much earlier than `glimpse`, and not before `since`."""
    for other in sight[name]:
        if other.told is not None and other.at >= max(glimpse.at - SLACK_S, since):
            yield other.told


def _gone(roster: Roster, worker: str, expected: Expected) -> bool:
    return worker in expected.down or roster.agents[worker] in expected.down


def _units(roster: Roster, sight: Sight, expected: Expected) -> Iterator[str]:
    for unit in roster.units:
        if unit in expected.down:
            continue
        newest = _newest(sight, unit, expected.since)
        if newest is None or newest.told is None:
            yield f"{unit} does not answer"
            continue
        details = newest.told["details"]
        if newest.told["state"] != UnitState.SERVING:
            yield f"{unit} is {newest.told['state']}"
            continue
        if details["is_busy"]:
            yield f"{unit} is changing its tables"
        for worker, agent in roster.agents.items():
            kept = details["holdings"][worker]
            if _gone(roster, worker, expected):
                if kept["keys"]:
                    yield f"{unit} has {kept['keys']} keys of {worker}, which is gone"
            elif not any(
                table_is_held(details, worker, told["details"][worker])
                for told in _around(sight, agent, newest, expected.since)
                if "details" in told
            ):
                yield f"{unit} has {kept['keys']} keys of {worker}, and not what {agent} says it holds"


def _agents(roster: Roster, sight: Sight, expected: Expected) -> Iterator[str]:
    for worker, agent in roster.agents.items():
        if _gone(roster, worker, expected):
            continue
        newest = _newest(sight, agent, expected.since)
        if newest is None or newest.told is None:
            yield f"{agent} does not answer"
            continue
        details = newest.told["details"][worker]
        if details["state"] != "exact":
            yield f"{agent}: {worker} is {details['state']}"
        elif worker in roster.engines and not any(
            told["kvcompass_mock"]["resident_blocks"] == details["blocks"]
            for told in _around(sight, worker, newest, expected.since)
        ):
            yield f"{agent} knows {details['blocks']} blocks of {worker}, and not what the engine holds"


def _edges(roster: Roster, sight: Sight, expected: Expected) -> Iterator[str]:
    for edge in roster.edges:
        if edge in expected.down:
            continue
        newest = _newest(sight, edge, expected.since)
        if newest is None or newest.told is None:
            yield f"{edge} does not answer"
            continue
        if not newest.told["readiness"]["ready"]:
            yield f"{edge} is not ready: {'; '.join(newest.told['readiness']['reasons'])}"
        yield from _views(roster, sight, expected, edge, newest)
        for worker in newest.told["workers"]:
            name = worker["worker"]
            if name in roster.engines and not _gone(roster, name, expected) and worker["standing"] != "known":
                yield f"{edge}: the load of {name} is {worker['standing']}"


def _views(roster: Roster, sight: Sight, expected: Expected, edge: str, newest: Glimpse) -> Iterator[str]:
    assert newest.told is not None
    shards = {shard["shard"]: shard for shard in newest.told["shards"]}
    for unit, number in roster.units.items():
        view = shards[number]
        if unit in expected.down:
            continue
        if view["state"] != "exact":
            yield f"{edge}: shard {number} is {view['state']}"
        elif not any(
            view_and_table(view, told["details"]) is Agreement.SAME
            for told in _around(sight, unit, newest, expected.since)
            if "digest" in told["details"]
        ):
            yield f"{edge}: shard {number} is at {view['applied_sequence']}, and not what {unit} has"
