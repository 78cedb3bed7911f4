"""`kvcompass status` says that all is true when it is, and names each thing that is not, with what to do."""

import copy
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.__main__ import main
from cli.plan_visits import Target, targets_of
from cli.status import look
from cli.status_asking import Round, Told, ask, ask_all
from cli.status_findings import findings
from cli.status_tables import tables
from kvcompass.errors import PlanError
from kvcompass.plan import dump_plan, parse_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.parse import decode_plan
from kvcompass.plan.rollout import Component
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.worker_source import Registration
from services.runtime.plan_desk import plan_digest
from tests.models.ports import free_address

EXAMPLE = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"
Answers = dict[str, Any]
Fleet = dict[Target, Answers]


def plan_of(addresses: Callable[[], str]) -> Plan:
    plan = parse_plan(decode_plan(EXAMPLE.read_bytes()))
    return replace(
        plan,
        edges=tuple(replace(edge, ops_address=addresses()) for edge in plan.edges),
        units=tuple(replace(unit, ops_address=addresses()) for unit in plan.units),
        workers=tuple(replace(worker, ops_address=addresses()) for worker in plan.workers),
    )


PORTS = iter(range(20_000, 30_000))
PLAN = plan_of(lambda: f"127.0.0.1:{next(PORTS)}")
TARGETS = targets_of(PLAN, ())
EDGE, UNIT, AGENT = (
    next(each for each in TARGETS if each.kind is kind)
    for kind in (Component.EDGE, Component.UNIT, Component.AGENT)
)
SHARD = next(unit.shard for unit in PLAN.units if unit.id in UNIT.ids)
WORKER = AGENT.ids[0]


def held(worker: str, shard: int) -> Answers:
    return {"keys": 3, "digest": f"{worker} {shard}"}


def whole(plan: Plan = PLAN) -> Fleet:
    """What the components tell when all is well."""
    return {target: _well(plan, target) for target in targets_of(plan, ())}


def _well(plan: Plan, target: Target) -> Answers:
    runs = {
        "kind": target.kind.value,
        "ids": list(target.ids),
        "plan_version": plan.plan_version,
        "plan_digest": plan_digest(plan),
        "settled": True,
    }
    makers: dict[Component, Callable[[Plan, Target], Answers]] = {
        Component.EDGE: _well_edge,
        Component.UNIT: _well_unit,
        Component.AGENT: _well_agent,
    }
    return {"plan": runs, "health": makers[target.kind](plan, target)}


def _well_edge(plan: Plan, target: Target) -> Answers:
    views = [
        {
            "shard": unit.shard,
            "state": "exact",
            "age_ms": 10.0,
            "fed_by": unit.id,
            "unit_epoch": 7,
            "applied_sequence": 40,
            "digest": f"table {unit.shard}",
            "snapshots": 1,
            "old_groups": 0,
            "digest_mismatches": 0,
            "relay_subscribers": 0,
            "resubscriptions": {"gap": 0, "moved": 2},
        }
        for unit in plan.units
    ]
    workers = [
        {"worker": worker.id, "standing": "out" if worker.drain else "known", "load_age_ms": 20.0}
        for worker in plan.workers
    ]
    return {
        "ready": True,
        "state": "ready",
        "reasons": [],
        "details": {"shards": views, "workers": workers, "blind_decisions": 0},
    }


def _well_unit(plan: Plan, target: Target) -> Answers:
    unit = next(unit for unit in plan.units if unit.id in target.ids)
    names = [worker.id for worker in plan.workers]
    counters = dict.fromkeys(("overflows", "holes", "digest_mismatches", "refusals", "leases_ended"), 0)
    return {
        "ready": True,
        "state": "serving",
        "reasons": [],
        "details": {
            "shard": unit.shard,
            "epoch": 7,
            "sequence": 40,
            "digest": f"table {unit.shard}",
            "entries": 9,
            "live_workers": names,
            "subscriber_lag_groups": {edge.id: 0 for edge in plan.edges},
            "counters": counters,
            "holdings": {name: held(name, unit.shard) for name in names},
            "workers": {name: {"registration": "live", "lease_left_ms": 2_000.0} for name in names},
            "snapshot": {
                "path": "/d/unit",
                "start": "restored",
                "age_s": 5.0,
                "period_s": 60.0,
                "bytes": 9,
                "failures": 0,
            },
        },
    }


def _well_agent(plan: Plan, target: Target) -> Answers:
    shards = [unit.shard for unit in plan.units]
    details = {
        name: {
            "state": "exact",
            "notes": [],
            "blocks": 9,
            "held_keys": 3,
            "pending_keys": {},
            "lost_batches": 0,
            "left_out": 0,
            "overflows": 0,
            "problems": {},
            "holdings": {str(shard): held(name, shard) for shard in shards},
        }
        for name in target.ids
    }
    return {"ready": True, "state": "serving", "reasons": [], "details": details}


def told(fleet: Fleet) -> Round:
    return {target: Told(plan=each["plan"], health=each["health"]) for target, each in fleet.items()}


def judged(fleet: Fleet, rounds: int = 3) -> list[tuple[str, str]]:
    found = findings(PLAN, [told(fleet)] * rounds)
    assert all(each.do for each in found)
    return [(each.component, each.what) for each in found]


def view(fleet: Fleet) -> Answers:
    views: list[Answers] = fleet[EDGE]["health"]["details"]["shards"]
    return next(each for each in views if each["shard"] == SHARD)


def unit_of(fleet: Fleet) -> Answers:
    details: Answers = fleet[UNIT]["health"]["details"]
    return details


def worker_of(fleet: Fleet) -> Answers:
    details: Answers = fleet[AGENT]["health"]["details"][WORKER]
    return details


def test_a_whole_fleet_is_true() -> None:
    assert judged(whole()) == []


def _set(place: Callable[[Fleet], Answers], **values: Any) -> Callable[[Fleet], None]:
    return lambda fleet: place(fleet).update(values)


@pytest.mark.parametrize(
    ("change", "component", "says"),
    [
        (
            _set(lambda f: f[EDGE]["health"], ready=False, reasons=["draining"]),
            EDGE,
            "is not ready: draining",
        ),
        (_set(view, state="stale"), EDGE, f"shard {SHARD} is stale"),
        (_set(view, digest="other"), EDGE, f"shard {SHARD} differs from its unit's table at 40"),
        (_set(view, unit_epoch=6), EDGE, f"shard {SHARD} follows another life of its unit"),
        (
            _set(lambda f: f[EDGE]["health"]["details"]["workers"][0], standing="unknown"),
            EDGE,
            f"the load of {PLAN.workers[0].id} is unknown",
        ),
        (_set(lambda f: f[UNIT]["health"], state="refilling", reasons=["w"]), UNIT, "is refilling: w"),
        (_set(lambda f: unit_of(f)["workers"][WORKER], registration="ended"), UNIT, f"ended: {WORKER}"),
        (_set(lambda f: unit_of(f)["snapshot"], age_s=181.0, failures=3), UNIT, "own snapshot is 181 s old"),
        (_set(lambda f: unit_of(f)["snapshot"], start="corrupt"), UNIT, "refused its own snapshot"),
        (_set(worker_of, state="partial"), WORKER, "is partial"),
        (_set(worker_of, problems={"edge-x": "lost"}), WORKER, "does not reach edge-x: lost"),
        (
            _set(lambda f: worker_of(f)["holdings"], **{str(SHARD): {"keys": 4, "digest": "d"}}),
            WORKER,
            f"{UNIT.ids[0]} has other keys for it",
        ),
        (_set(lambda f: f[AGENT]["plan"], plan_version=2), AGENT, "runs plan version 2, not 1"),
        (_set(lambda f: f[UNIT]["plan"], plan_digest="x"), UNIT, "runs another plan under version 1"),
        (
            _set(lambda f: f[UNIT]["plan"], plan_digest="x", settled=False),
            UNIT,
            "runs another plan under version 1, and has not settled it",
        ),
        (_set(lambda f: f[EDGE]["plan"], settled=False), EDGE, "has not settled"),
        (_set(lambda f: f[AGENT]["plan"], ids=[]), AGENT, f"does not serve {WORKER}"),
    ],
)
def test_each_thing_that_is_not_true_is_named(
    change: Callable[[Fleet], None], component: Target | str, says: str
) -> None:
    fleet = copy.deepcopy(whole())
    change(fleet)
    ((name, what),) = judged(fleet)
    assert name == (component if isinstance(component, str) else component.name)
    assert says in what


def test_a_copy_in_motion_is_not_called_untrue() -> None:
    """The unit and the agent move on between rounds; each has what the other had, or will have."""
    first, second = copy.deepcopy(whole()), copy.deepcopy(whole())
    unit_of(second).update(sequence=41, digest="later")
    worker_of(second)["holdings"][str(SHARD)] = {"keys": 4, "digest": "later"}
    assert findings(PLAN, [told(first), told(second)]) == []


def test_a_view_that_differed_at_any_place_is_named_though_the_table_moved_on() -> None:
    first = copy.deepcopy(whole())
    view(first)["digest"] = "other"
    later = copy.deepcopy(first)
    unit_of(later).update(sequence=41, digest="later")
    assert "differs" in findings(PLAN, [told(first), told(later)])[0].what


def test_a_worker_that_is_known_in_part_is_noted_and_true() -> None:
    fleet = copy.deepcopy(whole())
    worker_of(fleet)["state"] = "partial"
    (found,) = findings(PLAN, [told(fleet)])
    assert found.is_note
    worker_of(fleet)["state"] = "unreachable"
    (found,) = findings(PLAN, [told(fleet)])
    assert not found.is_note


def test_a_silent_engine_is_untrue_and_an_approximate_worker_is_noted() -> None:
    fleet = copy.deepcopy(whole())
    worker_of(fleet)["state"] = "silent"
    fleet[AGENT]["health"]["reasons"] = [
        f"{WORKER}: silent: start it with --x",
        f"other-{WORKER}: silent: no",
    ]
    (found,) = findings(PLAN, [told(fleet)])
    assert (found.what, found.is_note) == ("is silent at its agent: start it with --x", False)
    worker_of(fleet)["state"] = "approximate"
    (found,) = findings(PLAN, [told(fleet)])
    assert found.is_note and "what it has sent there" in found.do


def test_what_would_make_an_engine_better_is_noted() -> None:
    fleet = copy.deepcopy(whole())
    worker_of(fleet)["notes"] = ["start it with --page-size 16"]
    (found,) = findings(PLAN, [told(fleet)])
    assert (found.component, found.do, found.is_note) == (WORKER, "start it with --page-size 16", True)


def test_the_load_of_a_drained_worker_may_be_out() -> None:
    drained = replace(PLAN, workers=(replace(PLAN.workers[0], drain=True), *PLAN.workers[1:]))
    assert findings(drained, [told(whole(drained))]) == []


def test_every_state_has_words_for_what_to_do() -> None:
    for state in set(FollowerState) - {FollowerState.EXACT}:
        fleet = copy.deepcopy(whole())
        view(fleet)["state"] = state.value
        assert judged(fleet)
    for registration in set(Registration) - {Registration.LIVE}:
        fleet = copy.deepcopy(whole())
        unit_of(fleet)["workers"][WORKER]["registration"] = registration.value
        assert judged(fleet)
    for each in set(AgentState) - {AgentState.EXACT}:
        fleet = copy.deepcopy(whole())
        worker_of(fleet)["state"] = each.value
        assert judged(fleet)


def test_a_state_that_only_a_later_version_has_is_told_as_it_is() -> None:
    fleet = copy.deepcopy(whole())
    view(fleet)["state"] = worker_of(fleet)["state"] = "dreaming"
    unit_of(fleet)["workers"][WORKER]["registration"] = "dreaming"
    fleet[UNIT]["health"]["state"] = "dreaming"
    assert len([what for _, what in judged(fleet) if "dreaming" in what]) == 4


def test_what_follows_from_a_dead_component_comes_after_it_and_once() -> None:
    """A unit dies: its shard is stale at every edge, and no agent reaches it."""
    answers = {}
    for target, told_ in told(whole()).items():
        health = copy.deepcopy(told_.health)
        if target.kind is Component.EDGE:
            next(each for each in health["details"]["shards"] if each["shard"] == SHARD)["state"] = "stale"
        if target.kind is Component.AGENT:
            for name in target.ids:
                health["details"][name]["problems"][UNIT.ids[0]] = "connection refused"
        answers[target] = Told("refused") if target == UNIT else Told(plan=told_.plan, health=health)
    dead, *rest = findings(PLAN, [answers] * 2)
    assert (dead.component, "does not answer" in dead.what) == (UNIT.name, True)
    named = [set(each.component.split(", ")) for each in rest]
    edges = {each.name for each in TARGETS if each.kind is Component.EDGE}
    workers = {name for each in TARGETS if each.kind is Component.AGENT for name in each.ids}
    assert len(rest) == 2 and all(one in named for one in (edges, workers))


def test_tables_show_every_component_whether_it_answers_or_not() -> None:
    everybody = [name for target in TARGETS for name in target.ids]
    for answers in (told(whole()), dict.fromkeys(TARGETS, Told("no"))):
        console = Console(width=400, record=True, file=io.StringIO())
        for table in tables(PLAN, answers):
            console.print(table)
        text = console.export_text()
        assert all(name in text for name in everybody)


@contextmanager
def listening(fleet: Fleet) -> Iterator[None]:
    """Serves what each component tells at its address."""
    servers = []
    for target, answers in fleet.items():
        host, _, port = target.address.partition(":")
        servers.append(ThreadingHTTPServer((host, int(port)), _handler(answers)))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(answers: Answers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = json.dumps(answers.get(self.path.strip("/"), {})).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    return Handler


def test_exit_status_says_whether_all_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(free_address)
    path = tmp_path / "plan.toml"
    path.write_text(dump_plan(plan), "utf-8")
    fleet = whole(plan)

    def status(*options: str) -> tuple[int, str]:
        code = main(["status", str(path), "--timeout", "2", *options])
        return code, capsys.readouterr().out

    assert status()[0] == 2, "nobody answers"
    with listening(fleet):
        code, text = status()
        assert (code, "All is true" in text) == (0, True), text
        elsewhere = next(iter(fleet))
        assert status("--via", f"{elsewhere.address}={free_address()}")[0] == 1, "nobody is there"
        code, text = status("--json")
        document = json.loads(text)
        assert (code, document["all_true"], document["findings"]) == (0, True, [])
        assert len(document["components"]) == len(fleet)
    lost = next(target for target in fleet if target.kind is Component.UNIT)
    with listening({target: each for target, each in fleet.items() if target is not lost}):
        code, text = status()
        assert code == 1
        assert f"{lost.name}: does not answer" in text
        assert status("--without", lost.ids[0])[0] == 0


def test_what_cannot_be_asked_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(dump_plan(plan_of(lambda: "")), "utf-8")
    assert main(["status", str(path)]) == 2
    assert "ops_address" in capsys.readouterr().err
    assert main(["status", str(tmp_path / "none.toml")]) == 2


def test_somebody_else_at_the_address_is_no_answer() -> None:
    target = replace(EDGE, address=free_address())
    with listening({target: whole()[UNIT]}):
        assert ask(target, target.address, 2.0).problem == f"unit {UNIT.ids[0]} answers there"
    target = replace(EDGE, address=free_address())
    with listening({target: {}}):
        assert "no component" in ask(target, target.address, 2.0).problem


def test_one_that_accepts_and_says_nothing_costs_its_time_only() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = replace(EDGE, address=f"127.0.0.1:{silent.getsockname()[1]}")
        assert ask_all([target], 0.2, {})[target].problem


def test_one_that_lets_the_time_pass_is_asked_once_in_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(free_address)
    fleet = whole(plan)
    silent = next(iter(fleet))
    asked: list[Target] = []

    def asking(targets: Sequence[Target], timeout_s: float, via: Mapping[str, str]) -> Round:
        asked.extend(targets)
        return {
            each: Told("timed out", timed_out=True) if each == silent else told(fleet)[each]
            for each in targets
        }

    monkeypatch.setattr("cli.status.ask_all", asking)
    newest, found = look(plan, list(fleet), 3.0, {})
    assert list(newest) == list(fleet)
    assert [each.component for each in found] == [silent.name]
    assert asked.count(silent) == 1
    assert all(asked.count(each) > 1 for each in fleet if each != silent)


def test_a_component_without_an_operations_address_is_named() -> None:
    unit = replace(PLAN.units[0], ops_address="")
    with pytest.raises(PlanError) as refused:
        targets_of(replace(PLAN, units=(unit, *PLAN.units[1:])), ())
    assert [where for where, _ in refused.value.faults] == [f"unit {unit.id}"]
    assert targets_of(replace(PLAN, units=(unit, *PLAN.units[1:])), (unit.id,))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("passed", None),
        ("off", None),
        ("refused", None),
        ("pending", "not known yet"),
        ("not_tested", "not known"),
    ],
)
def test_a_self_test_that_is_open_is_a_note_and_a_worker_that_does_not_serve_has_none(
    result: str, said: str | None
) -> None:
    fleet = copy.deepcopy(whole())
    worker_of(fleet)["self_test"] = {"result": result, "reason": "no edge answers"}
    notes = [each for each in findings(PLAN, [told(fleet)]) if each.is_note]
    assert [each.what for each in notes] == (
        [f"it is {said} whether it reads prompts as edges do: no edge answers"] if said else []
    )
    worker_of(fleet)["state"] = "unreachable"
    assert not [each for each in findings(PLAN, [told(fleet)]) if each.is_note]
