"""A plan changes while a fleet runs: `kvcompass plan apply` against real processes under requests."""

import os
import random
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.__main__ import main
from kvcompass.plan import assign_text, dump_plan, parse_plan
from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.sections import UNASSIGNED
from lab.fleet import Fleet
from lab.ports import LoopbackPorts
from lab.process import ProcessSpec
from lab.three_regions import LabOptions, three_regions
from lab.toml import dump_toml
from tests.e2e.asking import (
    HTTP,
    ask,
    body,
    comes_true,
    explain,
    hold,
    knows,
    new_prompt,
    seen_everywhere,
    terms,
)

pytestmark = pytest.mark.e2e

_SOON_S = 15.0


@pytest.fixture(scope="module")
def lab(no_shared_lab: None) -> Iterator[Fleet]:
    options = LabOptions(time_scale=0.2, agents_share_a_process=False)
    with Fleet(three_regions(options, PORTS)) as fleet:
        yield fleet


PORTS = LoopbackPorts(random.Random(os.urandom(8)))


def test_a_plan_changes_under_requests_and_no_request_fails(
    lab: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVCOMPASS_PLAN_KEY", lab.blueprint.plan_key)
    plan = lab.blueprint.plan
    prompt = new_prompt()
    hold(lab, "worker-us-1", prompt)
    assert seen_everywhere(lab, "worker-us-1", prompt, knows)
    added = _start_worker(lab, "worker-eu-3", like="worker-eu-1")
    second = _next(plan, workers=_changed(plan, added))

    with _Requests(lab) as requests:
        assert _apply(tmp_path, second) == 0, capsys.readouterr()
        assert _versions(lab, second) == {2}
        table = capsys.readouterr().out
        assert "worker.worker-eu-3" in table and "Plan version 2 runs everywhere." in table

        # The added worker is found and chosen, the drained one is known and never chosen.
        fresh = new_prompt()
        assert comes_true(lambda: lab.process("agent-eu-3").ready(), _SOON_S)
        HTTP.post(f"{added.url}/v1/completions", json=body(fresh)).raise_for_status()
        assert seen_everywhere(lab, "worker-eu-3", fresh, knows)
        explanation = explain(lab, "us", prompt)
        assert terms(explanation, "worker-us-1")["standing"] == "out"
        assert explanation["chosen"] != "worker-us-1"
        assert knows(explanation, "worker-us-1")

        # The next version has it no more: no view names it, and nobody's state does.
        third = _next(second, workers=tuple(w for w in second.workers if w.id != "worker-us-1"))
        assert _apply(tmp_path, third) == 0, capsys.readouterr()
        assert comes_true(lambda: _nobody_names(lab, "worker-us-1", third), _SOON_S)
    assert requests.failed == []
    assert requests.served > 0
    assert (lab.directory / "plan.toml").read_text("utf-8") == dump_plan(third)


def _changed(plan: Plan, added: Worker) -> tuple[Worker, ...]:
    slower = {"worker-asia-1": {"prefill_ms_per_token": 2.0}, "worker-us-1": {"drain": True}}
    return (*(replace(w, **slower.get(w.id, {})) for w in plan.workers), added)


def _next(plan: Plan, workers: tuple[Worker, ...]) -> Plan:
    wan = tuple(tuple(1.5 * each for each in row) for row in plan.wan_ms)
    text = dump_plan(replace(plan, plan_version=plan.plan_version + 1, wan_ms=wan, workers=workers))
    return parse_plan(assign_text(text))


def _apply(tmp_path: Path, plan: Plan) -> int:
    path = tmp_path / f"plan-{plan.plan_version}.toml"
    path.write_text(dump_plan(plan), "utf-8")
    return main(["plan", "apply", str(path)])


def _start_worker(lab: Fleet, name: str, like: str) -> Worker:
    """Starts an engine and its agent, which the fleet does not know yet."""
    specs = {spec.name: spec for stage in lab.blueprint.stages for spec in stage.processes}
    model = next(worker for worker in lab.blueprint.plan.workers if worker.id == like)
    address, events, replay, ops = (PORTS.address() for _ in range(4))
    engine = tomllib.loads(specs[like].settings) | {
        "address": address,
        "event_endpoint": f"tcp://{events}",
        "replay_endpoint": f"tcp://{replay}",
    }
    lab.add(ProcessSpec(name, "services.mock_sglang", dump_toml(engine), address, "/v1/models"))
    worker = replace(
        model,
        id=name,
        url=f"http://{address}",
        events=f"tcp://{events}",
        replay=f"tcp://{replay}",
        table=UNASSIGNED,
        slot=UNASSIGNED,
        ops_address=ops,
    )
    plan = lab.blueprint.plan
    own = _next(plan, _changed(plan, worker))
    (lab.directory / "next.toml").write_text(dump_plan(own), "utf-8")
    agent = tomllib.loads(specs[f"agent-{like.removeprefix('worker-')}"].settings) | {
        "plan": "next.toml",
        "workers": [name],
        "ops_address": ops,
    }
    lab.add(
        ProcessSpec(f"agent-{name.removeprefix('worker-')}", "services.worker_agent", dump_toml(agent), ops)
    )
    return worker


def _versions(lab: Fleet, plan: Plan) -> set[int]:
    return {
        HTTP.get(f"http://{address}/plan").json()["plan_version"]
        for address in {each.ops_address for each in (*plan.units, *plan.edges, *plan.workers)}
    }


def _nobody_names(lab: Fleet, worker: str, plan: Plan) -> bool:
    units = [HTTP.get(f"http://{unit.ops_address}/health").json()["details"] for unit in plan.units]
    states = [HTTP.get(f"http://{edge.address}/v1/kvcompass/state").json() for edge in plan.edges]
    known = [each["worker"] for state in states for each in state["workers"]]
    return worker not in known and not any(worker in unit["holdings"] for unit in units)


class _Requests:
    """Asks every region, one request after the other, as long as the block lasts."""

    def __init__(self, lab: Fleet) -> None:
        self._lab = lab
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(region,)) for region in lab.base_urls]
        self.served = 0
        self.failed: list[str] = []

    def __enter__(self) -> "_Requests":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, region: str) -> None:
        prompts = [new_prompt(1_000) for _ in range(4)]
        while not self._over.is_set():
            try:
                ask(self._lab, region, random.choice(prompts))
                self.served += 1
            except Exception as error:
                self.failed.append(repr(error))
