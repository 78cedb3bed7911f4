"""A component takes the next version of its plan: signed, in order, at once, and kept in its file."""

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kvcompass.errors import KVCompassError
from kvcompass.plan import dump_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component, Phase
from services.runtime.disk import LocalDisk
from services.runtime.ops import Health, OpsServer
from services.runtime.plan_desk import Outcome, PlanDesk, plan_digest
from services.runtime.plan_signature import SIGNATURE_HEADER, check_plan_key, sign
from services.runtime.settings import SettingsError
from tests.models.example_plan import EXAMPLE_TEXT, THREE_REGIONS

KEY = "a key of many letters"
NEXT = replace(
    THREE_REGIONS, plan_version=2, wan_ms=tuple(tuple(2 * ms for ms in row) for row in THREE_REGIONS.wan_ms)
)


class Recorder:
    """What it was asked, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refuses = ""

    def check_plan(self, plan: Plan) -> None:
        if self.refuses:
            raise KVCompassError(self.refuses, field="edge")

    async def apply_plan(self, plan: Plan) -> None:
        self.calls.append(f"apply {plan.plan_version}")

    async def settle_plan(self) -> None:
        self.calls.append("settle")


class Desk:
    def __init__(self, folder: Path, *, key: str = KEY, disk: LocalDisk | None = None) -> None:
        self.path = folder / "plan.toml"
        self.path.write_text(EXAMPLE_TEXT, "utf-8")
        self.component = Recorder()
        self.desk = PlanDesk(
            Component.UNIT,
            ["unit-0"],
            THREE_REGIONS,
            self.path,
            key=key,
            component=self.component,
            disk=disk,
        )

    async def bring(
        self, phase: Phase, plan: Plan | str = NEXT, key: str = KEY
    ) -> tuple[int, dict[str, Any]]:
        body = (plan if isinstance(plan, str) else dump_plan(plan)).encode()
        status, answer = await self.desk.bring(phase.value, sign(key, phase, body), body)
        return status, json.loads(answer)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_version_is_prepared_then_settled_and_each_again_changes_nothing(desk: Desk):
    for phase, outcomes in ((Phase.PREPARE, ("applied", "already")), (Phase.SETTLE, ("applied", "already"))):
        for outcome in outcomes:
            status, facts = await desk.bring(phase)
            assert (status, facts["outcome"], facts["plan_version"]) == (200, outcome, 2)
            assert facts["settled"] is (phase is Phase.SETTLE)
            assert "wan_ms.us.eu" in [change["field"] for change in facts["changes"]]
    assert desk.component.calls == ["apply 2", "settle"]
    assert desk.desk.plan == NEXT
    assert desk.path.read_text("utf-8") == dump_plan(NEXT)


async def test_settling_alone_does_both(desk: Desk):
    status, facts = await desk.bring(Phase.SETTLE)
    assert (status, facts["settled"]) == (200, True)
    assert desk.component.calls == ["apply 2", "settle"]


async def test_a_check_changes_nothing(desk: Desk):
    status, facts = await desk.bring(Phase.CHECK)
    assert (status, facts["outcome"], facts["plan_version"]) == (200, "checked", 1)
    assert desk.component.calls == []
    assert desk.path.read_text("utf-8") == EXAMPLE_TEXT


def unassigned(plan: Plan) -> str:
    return dump_plan(plan).replace("table = 2\nslot = 1\n", "")


@pytest.mark.parametrize(
    ("plan", "status", "outcome"),
    [
        (replace(NEXT, plan_version=3), 409, Outcome.REFUSED),
        (replace(NEXT, plan_version=1), 409, Outcome.REFUSED),
        (replace(NEXT, model=replace(NEXT.model, block_size=32)), 409, Outcome.REFUSED),
        ("no plan at all", 400, Outcome.FAULTY),
        (unassigned(NEXT), 400, Outcome.FAULTY),
    ],
)
async def test_what_cannot_follow_changes_nothing_and_says_why(
    desk: Desk, plan: Plan | str, status: int, outcome: Outcome
):
    for phase in Phase:
        got, facts = await desk.bring(phase, plan)
        assert (got, facts["outcome"], facts["plan_version"]) == (status, outcome.value, 1)
        assert facts.get("faults") or facts.get("refused") or any(each["why"] for each in facts["changes"])
    assert desk.component.calls == []
    assert desk.path.read_text("utf-8") == EXAMPLE_TEXT
    assert desk.desk.outcomes == {outcome: 3}


async def test_a_version_that_is_not_settled_is_finished_first(desk: Desk):
    await desk.bring(Phase.PREPARE)
    third = replace(NEXT, plan_version=3)
    status, facts = await desk.bring(Phase.PREPARE, third)
    assert status == 409
    assert "not settled" in facts["refused"]["why"]
    await desk.bring(Phase.SETTLE)
    assert (await desk.bring(Phase.PREPARE, third))[0] == 200


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.SETTLE])
async def test_another_content_of_the_same_version_is_refused_with_advice_that_is_taken(
    desk: Desk, phase: Phase
):
    await desk.bring(phase)
    other = replace(NEXT, wan_ms=THREE_REGIONS.wan_ms)
    status, facts = await desk.bring(Phase.SETTLE, other)
    assert status == 409
    assert "another content" in facts["refused"]["why"]
    if phase is Phase.PREPARE:
        assert str(desk.path) in facts["refused"]["roll"]
        assert (await desk.bring(Phase.SETTLE, desk.path.read_text("utf-8")))[0] == 200
    assert (await desk.bring(Phase.PREPARE, replace(other, plan_version=NEXT.plan_version + 1)))[0] == 200


async def test_a_component_may_refuse_by_itself(desk: Desk):
    desk.component.refuses = "not here"
    status, facts = await desk.bring(Phase.PREPARE)
    assert (status, facts["refused"]["field"], facts["refused"]["why"]) == (409, "edge", "not here")
    assert desk.component.calls == []


async def test_a_file_that_cannot_be_written_is_told_and_the_version_runs(desk: Desk):
    desk.path.unlink()
    status, facts = await desk.bring(Phase.SETTLE)
    assert (status, facts["plan_version"], facts["kept"]) == (200, 2, False)
    assert "No such file" in facts["kept_why"]


class KilledDisk(LocalDisk):
    """The process is killed once it has written, and what it was to tidy up stays."""

    def replace(self, source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "killed")

    def remove(self, path: Path) -> None:
        raise OSError(errno.EIO, "killed")


async def test_a_component_that_was_killed_removes_what_it_left_when_it_starts(tmp_path: Path):
    killed = Desk(tmp_path, disk=KilledDisk())
    version = tmp_path / "version"
    version.mkdir()
    killed.path.symlink_to(killed.path.rename(version / killed.path.name))
    assert (await killed.bring(Phase.SETTLE))[1]["kept"] is False
    assert killed.path.read_text("utf-8") == EXAMPLE_TEXT
    assert len(LocalDisk().names(version)) == 2, "the plan, and what was left beside it"
    ops = OpsServer(
        "127.0.0.1:0", lambda: Health(True, "well"), CollectorRegistry(), plan=Desk(tmp_path).desk
    )
    await ops.start()
    await ops.stop()
    assert LocalDisk().names(version) == [killed.path.resolve()]


async def test_a_file_that_says_it_already_is_left_alone(desk: Desk):
    desk.path.write_text(dump_plan(NEXT), "utf-8")
    before = desk.path.stat().st_ino
    assert (await desk.bring(Phase.SETTLE))[1]["kept"] is True
    assert desk.path.stat().st_ino == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda phase, body: sign("another key, as long", phase, body),
        lambda phase, body: sign(KEY, Phase.CHECK, body),
        lambda phase, body: sign(KEY, phase, body + b"\n"),
        lambda phase, body: "",
        lambda phase, body: "sha256=é",
    ],
)
async def test_who_does_not_sign_changes_nothing(desk: Desk, spoil: Callable[[Phase, bytes], str]):
    body = dump_plan(NEXT).encode()
    status, answer = await desk.desk.bring("settle", spoil(Phase.SETTLE, body), body)
    assert (status, json.loads(answer)["outcome"]) == (401, "unsigned")
    assert desk.component.calls == []


async def test_without_a_key_no_plan_is_taken(tmp_path: Path):
    desk = Desk(tmp_path, key="")
    assert (await desk.bring(Phase.SETTLE, key=""))[0] == 404
    assert desk.component.calls == []


def test_a_key_that_could_be_guessed_is_refused():
    check_plan_key("")
    check_plan_key("k" * 16)
    with pytest.raises(SettingsError, match="16"):
        check_plan_key("k" * 15)


async def test_it_is_reached_over_http_and_counted(desk: Desk):
    registry = CollectorRegistry()
    ops = OpsServer("127.0.0.1:0", lambda: Health(True, "well"), registry, plan=desk.desk)
    await ops.start()
    try:
        body = dump_plan(NEXT).encode()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ops.port}", trust_env=False) as client:
            assert (await client.get("/plan")).json()["plan_version"] == 1
            headers = {SIGNATURE_HEADER: sign(KEY, Phase.SETTLE, body)}
            answer = await client.put("/plan/settle", content=body, headers=headers)
            assert (answer.status_code, answer.json()["outcome"]) == (200, "applied")
            assert (await client.put("/plan/settle", content=body)).status_code == 401
            assert (await client.put("/plan/nothing", content=body)).status_code == 404
            assert (await client.get("/plan")).json()["plan_version"] == 2
    finally:
        await ops.stop()
    metrics = generate_latest(registry).decode()
    assert "kvcompass_plan_version 2.0" in metrics
    assert registry.get_sample_value("kvcompass_plan_content") == int(plan_digest(NEXT)[:12], 16)
    assert "kvcompass_plan_settled 1.0" in metrics
    assert 'kvcompass_plan_applies_total{outcome="applied"} 1.0' in metrics
    assert 'kvcompass_plan_applies_total{outcome="unsigned"} 1.0' in metrics
    assert 'kvcompass_plan_applies_total{outcome="failed"} 0.0' in metrics
