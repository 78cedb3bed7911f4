"""What is not as it should be in a fleet, by what its components said; and what to do about it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cli.plan_visits import Target
from cli.status_asking import Round, Told
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component
from services.maintenance.unit_state import UnitState
from services.runtime.agreement import Agreement, Words, table_is_held, view_and_table
from services.runtime.plan_desk import plan_digest

SNAPSHOT_PERIODS: Final = 3
"""After so many a unit's own snapshot ought to have been written."""

_UNKNOWN: Final = "this command does not know that state: use the one of the version that runs there"
_VIEW: Final = {
    "absent": "never loaded: its levels are skipped. See to the unit of the shard, and the way to it",
    "catching_up": "wait: it loads, or is not verified yet. For long: the edge or the way to it is too slow",
    "stale": "nothing was heard for 3 s; it serves on, blindly. See to the shard's unit, and the way to it",
}
_UNIT: Final[Mapping[str, str]] = {
    UnitState.COMPILING: "wait: a minute at the first start, seconds later",
    UnitState.RESTORING: "wait: it reads its own snapshot",
    UnitState.REFILLING: "wait; edges serve on with what they have. For long: see to the agents awaited",
    UnitState.CORRECTING: "wait: it serves; edges that know more wait for the agents that are awaited",
    UnitState.DRAINING: "it is being stopped: start it again",
}
_KNOWN_LESS: Final = ("partial", "approximate")
"""States of an agent in which less is known than could be, and nothing is untrue."""
_INDEXED: Final = ("exact", "partial")
_UNTESTED: Final = {"pending": "not known yet", "not_tested": "not known"}
"""Results of a self-test that leave it open."""
_AGENT: Final = {
    "approximate": "its engine sends no events, so each edge credits it with what it has sent there lately. "
    'To know what it holds, let it send events, and plan it under another id with holdings = "events"',
    "silent": "it is served by its load alone: start the engine as is said",
    "attaching": "wait: it learns what its engine holds",
    "partial": "nothing wrong is claimed, and less than is held, until the cache is cleared. Right after a "
    "restart of the agent; otherwise enlarge buffer_steps of the engine's KV events",
    "unreachable": "restart the engine",
    "refused": "start the engine as is said, or plan what it is",
}
_REGISTRATION: Final = {
    "absent": "no agent has reached this unit for them since it started: see to the agents, and the way",
    "awaited": "wait: their reports are on their way",
    "silent": "their streams are broken, their leases run. See to the agents, and the way to the unit",
    "ended": "silent for longer than a lease, and cleared. See to the engines, the agents, and the way",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not true."""

    component: str
    what: str
    do: str
    is_note: bool = False
    """Worth knowing; nothing is untrue."""


def findings(plan: Plan, rounds: Sequence[Round]) -> list[Finding]:
    """Everything that was not true in the last of some rounds; empty when all is.

    Those that do not answer come first: much of the rest follows from them. What is the same at several is
    said once. A copy is compared with what its original said in any of the rounds: news takes its time.
    """
    dead: list[Finding] = []
    found: list[Finding] = []
    for target, told in rounds[-1].items():
        if told.problem:
            dead.append(Finding(target.name, f"does not answer: {told.problem}", "start it, or see its log"))
            continue
        found += _plan(plan, target, told)
        judge = {Component.EDGE: _edge, Component.UNIT: _unit, Component.AGENT: _agent}[target.kind]
        found += judge(plan, target, rounds)
    return _once_each(dead) + _once_each(found)


def _once_each(found: Sequence[Finding]) -> list[Finding]:
    """The same of several components is one finding of all of them, in the place of the first."""
    names: dict[Finding, list[str]] = {}
    for each in found:
        names.setdefault(replace(each, component=""), []).append(each.component)
    return [replace(each, component=", ".join(dict.fromkeys(those))) for each, those in names.items()]


def _plan(plan: Plan, target: Target, told: Told) -> Iterator[Finding]:
    runs, apply = told.plan, "run kvcompass plan apply of the newest plan to its end"
    if runs["plan_version"] != plan.plan_version:
        what = f"runs plan version {runs['plan_version']}, not {plan.plan_version}"
        yield Finding(target.name, what, f"{apply}, or give this command the plan that runs")
    elif runs["plan_digest"] != plan_digest(plan):
        what = f"runs another plan under version {plan.plan_version}"
        if runs["settled"]:
            yield Finding(target.name, what, "raise plan_version of the right one by 1 and apply it")
        else:
            yield Finding(
                target.name,
                f"{what}, and has not settled it",
                "apply the one that it keeps in its plan file to its end. Where others have settled or begun "
                "another: stop this one, put their file in the place of its own, start it",
            )
    elif not runs["settled"]:
        yield Finding(target.name, f"has not settled plan version {plan.plan_version}", apply)
    for name in sorted(set(target.ids) - set(runs["ids"])):
        yield Finding(target.name, f"does not serve {name}", "its settings name what it serves")


def _edge(plan: Plan, target: Target, rounds: Sequence[Round]) -> Iterator[Finding]:
    health, details = rounds[-1][target].health, rounds[-1][target].details
    if not health["ready"]:
        why = "; ".join(health["reasons"])
        yield Finding(target.name, f"is not ready: {why}", "balancers leave it out until it is")
    for view in details["shards"]:
        shard = view["shard"]
        if view["state"] != "exact":
            yield Finding(
                target.name, f"shard {shard} is {view['state']}", _VIEW.get(view["state"], _UNKNOWN)
            )
            continue
        seen = {view_and_table(view, unit) for unit in _units(plan, shard, rounds)}
        if Agreement.DIFFERENT in seen:
            yield Finding(
                target.name,
                f"shard {shard} differs from its unit's table at {view['applied_sequence']}",
                "it begins anew at the next watermark, within a second; report it with both logs",
            )
        elif seen == {Agreement.OTHER_LIFE}:
            yield Finding(
                target.name,
                f"shard {shard} follows another life of its unit",
                "wait: it goes over when the unit serves, and is right until then but for what changed",
            )
    drained = {worker.id for worker in plan.workers if worker.drain}
    standings = {each["worker"]: each["standing"] for each in details["workers"]}
    for standing, names in _by_state(standings, "known", standings.keys() - drained):
        yield Finding(
            target.name,
            f"the load of {names} is {standing}",
            "they are chosen last or not at all. See to their agents, and to an edge of their region",
        )


def _unit(plan: Plan, target: Target, rounds: Sequence[Round]) -> Iterator[Finding]:
    health, details = rounds[-1][target].health, rounds[-1][target].details
    if health["state"] != UnitState.SERVING:
        why = "; ".join(health["reasons"])
        yield Finding(target.name, f"is {health['state']}: {why}", _UNIT.get(health["state"], _UNKNOWN))
    stand = {name: each["registration"] for name, each in details.get("workers", {}).items()}
    for registration, names in _by_state(stand, "live", {worker.id for worker in plan.workers}):
        yield Finding(target.name, f"{registration}: {names}", _REGISTRATION.get(registration, _UNKNOWN))
    snapshot = details.get("snapshot")
    if snapshot is None:
        return
    if snapshot["start"] not in ("restored", "missing"):
        yield Finding(
            target.name,
            f"refused its own snapshot at its start: {snapshot['start']}",
            f"agents refill it. Keep {snapshot['path']}.refused for a report, then delete it",
        )
    if snapshot["period_s"] and snapshot["age_s"] > SNAPSHOT_PERIODS * snapshot["period_s"]:
        yield Finding(
            target.name,
            f"its own snapshot is {snapshot['age_s']:.0f} s old, {snapshot['failures']} writings failed",
            "its log names the error: a full disk, a wrong mode",
        )


def _agent(plan: Plan, target: Target, rounds: Sequence[Round]) -> Iterator[Finding]:
    details = rounds[-1][target].details
    for name in target.ids:
        worker = details.get(name)
        if worker is None:
            continue
        if worker["state"] != "exact":
            state = worker["state"]
            what = f"is {state} at its agent{_why(rounds[-1][target], name, state)}"
            yield Finding(name, what, _AGENT.get(state, _UNKNOWN), is_note=state in _KNOWN_LESS)
        yield from _self_test(name, worker)
        for note in worker.get("notes", ()):
            yield Finding(name, "is served, and its engine could do better", note, is_note=True)
        for other, problem in worker["problems"].items():
            yield Finding(
                name,
                f"its agent does not reach {other}: {problem}",
                f"do what the reason says, or else see to {other}, and the way",
            )
        for unit in plan.units:
            if _differs(plan, name, target, unit.shard, rounds):
                yield Finding(
                    name,
                    f"{unit.id} has other keys for it than its agent says",
                    "it is compared every 5 s and mended by a full report; report it if it lasts",
                )


def _self_test(name: str, worker: Mapping[str, Any]) -> Iterator[Finding]:
    """That nobody knows whether a worker that serves reads prompts as edges do. Old agents do not test."""
    test = worker.get("self_test")
    if test is None or worker["state"] not in _INDEXED or test["result"] not in _UNTESTED:
        return
    known = _UNTESTED[test["result"]]
    what = f"it is {known} whether it reads prompts as edges do: {test['reason']}"
    yield Finding(
        name, what, "do what the reason says; it serves meanwhile (docs/self-test.md)", is_note=True
    )


def _why(told: Told, worker: str, state: str) -> str:
    """What an agent says of the state of a worker beyond its name."""
    said = f"{worker}: {state}: "
    return "".join(f": {each.removeprefix(said)}" for each in told.health["reasons"] if each.startswith(said))


def _by_state(states: Mapping[str, str], well: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is not well, by its state, each with all that are in it."""
    for state in sorted(set(states.values()) - {well}):
        those = [name for name, each in states.items() if each == state and name in names]
        if those:
            yield state, ", ".join(those)


def _differs(plan: Plan, worker: str, target: Target, shard: int, rounds: Sequence[Round]) -> bool:
    """Both say the same in all rounds, several of them, and not the same as one another."""
    units = [unit for unit in _units(plan, shard, rounds) if worker in unit["holdings"]]
    agents = [
        told.details[worker] for each in rounds if worker in (told := each.get(target, Told("none"))).details
    ]
    if len(rounds) < 2 or len(units) < len(rounds) or len(agents) < len(rounds):
        return False
    still = all(unit["holdings"][worker] == units[0]["holdings"][worker] for unit in units) and all(
        agent["holdings"][str(shard)] == agents[0]["holdings"][str(shard)] for agent in agents
    )
    alive = agents[-1]["state"] in ("exact", "partial") and units[-1]["workers"][worker]["lease_left_ms"]
    return bool(alive) and still and not table_is_held(units[-1], worker, agents[-1])


def _units(plan: Plan, shard: int, rounds: Sequence[Round]) -> list[Words]:
    """What the unit of a shard said, in each round in which it said something of its table."""
    ids = {unit.id for unit in plan.units if unit.shard == shard}
    found: list[Any] = []
    for each in rounds:
        for target, told in each.items():
            if target.kind is Component.UNIT and ids & set(target.ids) and "digest" in told.details:
                found.append(told.details)
    return found
