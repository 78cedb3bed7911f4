"""A plan changes while a fleet runs: `kvcompass plan apply` against real processes under requests."""

import random
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cli.__main__ import main
from kvcompass.levels import registered_lengths
from kvcompass.plan import assign_text, dump_plan, parse_plan
from kvcompass.plan.model import Edge, Plan, Worker
from kvcompass.plan.sections import UNASSIGNED
from lab.fleet import Fleet
from lab.process import ProcessSpec
from lab.three_regions import LabOptions, three_regions
from lab.toml import dump_toml
from tests.e2e.asking import (
    HTTP,
    Explanation,
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
from tests.models.ports import lab_ports

pytestmark = pytest.mark.e2e

_SOON_S = 20.0
_PORTS = lab_ports()


class Running:
    """A lab whose plan changes: its first plan and the versions that were applied since."""

    def __init__(self, lab: Fleet, folder: Path) -> None:
        self.lab = lab
        self.plan = lab.blueprint.plan
        self._folder = folder
        self._specs = {spec.name: spec for stage in lab.blueprint.stages for spec in stage.processes}

    def after(self, **changes: object) -> Plan:
        """The next version, with these changes."""
        plan = replace(self.plan, plan_version=self.plan.plan_version + 1, **changes)  # type: ignore[arg-type]
        return parse_plan(assign_text(dump_plan(plan)))

    def apply(self, plan: Plan, *options: str) -> int:
        """Runs the command; its exit status."""
        path = self._folder / f"plan-{plan.plan_version}.toml"
        path.write_text(dump_plan(plan), "utf-8")
        code = main(["plan", "apply", str(path), *options])
        if code == 0 and "--dry-run" not in options:
            self.plan = plan
        return code

    def new_worker(self, name: str, like: str, region: str | None = None) -> Worker:
        """A worker that the fleet does not know yet; its engine is started."""
        model = next(worker for worker in self.lab.blueprint.plan.workers if worker.id == like)
        address, events, replay, ops = (_PORTS.address() for _ in range(4))
        engine = tomllib.loads(self._specs[like].settings) | {
            "address": address,
            "event_endpoint": f"tcp://{events}",
            "replay_endpoint": f"tcp://{replay}",
        }
        self.lab.add(ProcessSpec(name, "services.mock_sglang", dump_toml(engine), address, "/v1/models"))
        return replace(
            model,
            id=name,
            region=region or model.region,
            url=f"http://{address}",
            events=f"tcp://{events}",
            replay=f"tcp://{replay}",
            table=UNASSIGNED,
            slot=UNASSIGNED,
            ops_address=ops,
        )

    def start(self, name: str, like: str, plan: Plan, ops: str, **settings: object) -> None:
        """Starts a component with the settings of another, from a file of its own with this plan."""
        spec = self._specs[like]
        (self.lab.directory / f"{name}-plan.toml").write_text(dump_plan(plan), "utf-8")
        own = tomllib.loads(spec.settings) | {"plan": f"{name}-plan.toml", "ops_address": ops} | settings
        self.lab.add(ProcessSpec(name, spec.module, dump_toml(own), ops))

    def versions(self) -> set[int]:
        plan = self.plan
        addresses = {each.ops_address for each in (*plan.units, *plan.edges, *plan.workers)}
        return {_version_at(address) for address in addresses}

    def nobody_names(self, worker: str) -> bool:
        plan = self.plan
        units = [HTTP.get(f"http://{unit.ops_address}/health").json()["details"] for unit in plan.units]
        states = [HTTP.get(f"http://{edge.address}/v1/kvcompass/state").json() for edge in plan.edges]
        known = [each["worker"] for state in states for each in state["workers"]]
        return worker not in known and not any(worker in unit["holdings"] for unit in units)


@pytest.fixture(scope="module")
def running(no_shared_lab: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    options = LabOptions(time_scale=0.2, agents_share_a_process=False)
    with (
        Fleet(three_regions(options, _PORTS)) as fleet,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("KVCOMPASS_PLAN_KEY", fleet.blueprint.plan_key)
        yield Running(fleet, tmp_path_factory.mktemp("plans"))


def test_workers_join_are_drained_and_leave_and_no_request_fails(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = running.lab
    prompt = new_prompt()
    hold(lab, "worker-us-1", prompt)
    assert seen_everywhere(lab, "worker-us-1", prompt, knows)
    added = running.new_worker("worker-eu-3", like="worker-eu-1")
    tuned = {"worker-asia-1": {"prefill_ms_per_token": 2.0}, "worker-us-1": {"drain": True}}
    workers = (*(replace(w, **tuned.get(w.id, {})) for w in running.plan.workers), added)
    wan = tuple(tuple(1.5 * each for each in row) for row in running.plan.wan_ms)
    second = running.after(workers=workers, wan_ms=wan)
    running.start("agent-eu-3", "agent-eu-1", second, added.ops_address, workers=["worker-eu-3"])

    with _Requests(lab) as requests:
        assert running.apply(second, "--dry-run") == 0, capsys.readouterr()
        assert "worker.worker-eu-3" in capsys.readouterr().out
        assert running.versions() == {1}
        assert running.apply(second) == 0, capsys.readouterr()
        assert comes_true(lambda: running.versions() == {2}, _SOON_S)
        assert "Plan version 2 runs everywhere." in capsys.readouterr().out
        assert running.apply(second) == 0, "again changes nothing"

        fresh = new_prompt()
        assert comes_true(lambda: lab.process("agent-eu-3").ready(), _SOON_S)
        HTTP.post(f"{added.url}/v1/completions", json=body(fresh)).raise_for_status()
        assert seen_everywhere(lab, "worker-eu-3", fresh, knows)
        explanation = explain(lab, "us", prompt)
        assert terms(explanation, "worker-us-1")["standing"] == "out"
        assert explanation["chosen"] != "worker-us-1"
        assert knows(explanation, "worker-us-1")

        third = running.after(workers=tuple(w for w in second.workers if w.id != "worker-us-1"))
        assert running.apply(third) == 0, capsys.readouterr()
        assert comes_true(lambda: running.nobody_names("worker-us-1"), _SOON_S)
    assert requests.failed == []
    assert requests.served > 0
    assert (lab.directory / "plan.toml").read_text("utf-8") == dump_plan(third)


def test_a_region_joins_with_tables_of_its_own(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    lab, plan = running.lab, running.plan
    prompt = new_prompt()
    hold(lab, "worker-asia-2", prompt)
    worker = running.new_worker("worker-africa-1", like="worker-eu-1", region="africa")
    edge = Edge("edge-africa", "africa", *(_PORTS.address() for _ in range(4)))
    far = [20.0] * len(plan.regions)
    wan = (*((*row, 20.0) for row in plan.wan_ms), (*far, 0.5))
    joined = running.after(
        regions=(*plan.regions, "africa"),
        wan_ms=wan,
        edges=(*plan.edges, edge),
        workers=(*plan.workers, worker),
    )
    assert joined.tables == plan.tables + 1
    running.start("edge-africa", "edge-us", joined, edge.ops_address, id="edge-africa")
    running.start("agent-africa-1", "agent-eu-1", joined, worker.ops_address, workers=["worker-africa-1"])
    with _Requests(lab) as requests:
        assert running.apply(joined) == 0, capsys.readouterr()
        assert comes_true(lambda: lab.process("agent-africa-1").ready(), _SOON_S)
        assert comes_true(lambda: lab.process("edge-africa").ready(), _SOON_S)
        assert running.versions() == {joined.plan_version}
        fresh = new_prompt()
        HTTP.post(f"{worker.url}/v1/completions", json=body(fresh)).raise_for_status()
        assert seen_everywhere(lab, "worker-africa-1", fresh, knows)
        assert comes_true(lambda: knows(_explained_at(edge, fresh), "worker-africa-1"), _SOON_S)
        assert comes_true(lambda: knows(_explained_at(edge, prompt), "worker-asia-2"), _SOON_S)
        assert knows(explain(lab, "us", prompt), "worker-asia-2"), "what was held before is found as before"
    assert requests.failed == []


def test_lengths_change_and_what_is_held_is_found_at_the_new_ones(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = running.lab
    prompt = new_prompt()
    hold(lab, "worker-asia-2", prompt)
    assert seen_everywhere(lab, "worker-asia-2", prompt, knows)
    before = explain(lab, "asia", prompt)["lengths"]
    closer = running.after(lengths=replace(running.plan.lengths, stretch=0.4))
    with _Requests(lab) as requests:
        assert running.apply(closer) == 0, capsys.readouterr()
        after = explain(lab, "asia", prompt)
        assert after["lengths"] == [n for n in registered_lengths(closer).tolist() if n < len(prompt)]
        assert after["lengths"] != before
        assert seen_everywhere(lab, "worker-asia-2", prompt, knows)
    assert requests.failed == []


def test_a_layout_is_refused_and_says_how_to_roll(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    version = running.plan.plan_version
    other = running.after(model=replace(running.plan.model, block_size=128))
    assert running.apply(other) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "model.block_size" in said
    assert "start a second fleet" in said
    assert running.versions() == {version}


def test_who_does_not_answer_is_named_and_nothing_is_changed(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, version = running.plan, running.plan.plan_version
    later = running.after(routing=replace(plan.routing, queue_scale_ms=50.0))
    running.lab.process("agent-asia-1").kill()
    assert running.apply(later, "--timeout", "2") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Nothing was changed. Missing: agent worker-asia-1." in said
    assert running.apply(later, "--timeout", "2", "--without", "worker-asia-1") == 0, capsys.readouterr()
    running.lab.restart("agent-asia-1")
    assert running.apply(later) == 0, capsys.readouterr()
    assert running.versions() == {version + 1}, "whoever starts later has the new file"


def _version_at(address: str) -> int:
    """0 where nobody answers yet."""
    try:
        version: int = HTTP.get(f"http://{address}/plan").json()["plan_version"]
    except httpx.TransportError:
        return 0
    return version


def _explained_at(edge: Edge, prompt: list[int]) -> Explanation:
    answer = HTTP.post(f"http://{edge.address}/v1/kvcompass/route", json=body(prompt)).raise_for_status()
    explanation: Explanation = answer.json()
    return explanation


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
