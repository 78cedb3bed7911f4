"""The fleet that is broken: its plan holds, its filler fills, and what is found of it is said as it is."""

import json
import random
import tomllib
from pathlib import Path

import msgspec
import pytest

from kvcompass.keys import shard_of
from kvcompass.keys.digest import holdings_digest
from kvcompass.plan.parse import parse_plan
from kvcompass.roles.messages import FullReport, Renewal, Welcome
from kvcompass.roles.unit_report import UnitReport
from lab.faults.cases import CASES, rolling_order
from lab.faults.fault_fleet import FILLER, fault_fleet, is_filled, roster_of
from lab.faults.filler import FillerSettings
from lab.faults.findings import Bound, Findings
from lab.faults.held_keys import HeldKeys
from lab.ports import LoopbackPorts
from services.maintenance.settings import MaintenanceSettings, check_switches

BLUEPRINT = fault_fleet(LoopbackPorts(random.Random(7)), keys=300, keys_max=5_000)
SPECS = {spec.name: spec for stage in BLUEPRINT.stages for spec in stage.processes}


def test_the_plan_is_one_that_every_component_takes() -> None:
    plan = parse_plan(BLUEPRINT.plan_text)
    assert plan == BLUEPRINT.plan
    assert [edge.id for edge in plan.edges] == ["edge-us", "edge-us-2", "edge-eu", "edge-asia"]
    filled = [worker for worker in plan.workers if is_filled(worker)]
    assert {worker.table for worker in filled} == set(range(plan.tables)), "every table fills"
    assert len({(worker.table, worker.slot) for worker in plan.workers}) == len(plan.workers)
    assert plan.worker_entries_max == 5_000


def test_the_filler_reports_every_worker_that_has_no_engine() -> None:
    settings = msgspec.convert(tomllib.loads(SPECS[FILLER].settings), FillerSettings)
    filled = [worker.id for worker in BLUEPRINT.plan.workers if is_filled(worker)]
    assert settings.workers == filled
    assert not set(filled) & set(SPECS)
    assert BLUEPRINT.ops_addresses[FILLER] == settings.ops_address
    reached = {settings.connect_via.get(unit.address, unit.address) for unit in BLUEPRINT.plan.units}
    own = {unit.address for unit in BLUEPRINT.plan.units if unit.region == "eu"}
    assert reached & {unit.address for unit in BLUEPRINT.plan.units} == own, "others are across the relay"


@pytest.mark.parametrize("unit", ["unit-0", "unit-1"])
def test_units_may_lose_patches(unit: str) -> None:
    settings = msgspec.convert(tomllib.loads(SPECS[unit].settings), MaintenanceSettings)
    assert settings.fault_switches
    check_switches(settings)


def held(keys: int) -> HeldKeys:
    worker = next(worker for worker in BLUEPRINT.plan.workers if is_filled(worker))
    made = HeldKeys(worker, 2, epoch=5, random_seed=3)
    made.hold(keys)
    return made


def test_what_is_held_is_told_and_lies_in_its_shard() -> None:
    full = held(4_000)
    assert sum(full.count(shard) for shard in range(2)) == 4_000
    for shard in range(2):
        keys, tiers = full.report(shard)
        assert set(shard_of(keys, 2).tolist()) == {shard}
        assert len(set(keys.tolist())) == full.count(shard) == keys.size > 1_500
        assert full.digest(shard) == holdings_digest(keys, tiers)
        assert int(keys.max()) < 1 << 63
        fewer = held(1_000).report(shard)[0]
        assert set(fewer.tolist()) < set(keys.tolist())


def test_it_is_reported_like_any_worker() -> None:
    report = UnitReport(held(1_000), 1, {}, 1, lease_ms=3_000)
    hello = report.connect()
    report.on_message(Welcome(9, 3_000, full_report_wanted=True))
    (chunk,) = [report.take()]
    assert isinstance(chunk, FullReport)
    report.renew()
    renewal = report.take()
    assert isinstance(renewal, Renewal)
    assert (renewal.holdings, renewal.holdings_digest) == (
        chunk.keys.size,
        holdings_digest(chunk.keys, chunk.tiers),
    )
    assert hello.holdings.holdings == chunk.keys.size


def test_a_rolling_restart_leaves_nobody_out() -> None:
    order = rolling_order(roster_of(BLUEPRINT))
    assert len(order) == len(set(order))
    assert set(order) == set(SPECS) - {"relay", FILLER}


def test_every_case_is_documented() -> None:
    text = Path("docs/faults.md").read_text("utf-8")
    assert [name for name in CASES if f"`{name}`" not in text] == []
    assert all(case.__doc__ for case in CASES.values())


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        (Findings("x", recovered_in_s=1.0), True),
        (Findings("x"), False),
        (Findings("x", recovered_in_s=1.0, failed_requests=1), False),
        (Findings("x", recovered_in_s=1.0, problems=["a probe failed"]), False),
        (Findings("x", recovered_in_s=1.0, bounds=[Bound("b", 5.0, 5.0)]), True),
        (Findings("x", recovered_in_s=1.0, bounds=[Bound("b", 5.0, 5.0), Bound("c", 5.0, 5.01)]), False),
        (Findings("x", recovered_in_s=1.0, bounds=[Bound("b", 5.0, None)]), False),
        (Findings("x", recovered_in_s=9.0, wrong_claims=3, blind_decisions=4, cut_answers=2), True),
    ],
)
def test_a_case_is_ok_when_every_promise_is_kept(found: Findings, ok: bool) -> None:
    assert found.ok == ok
    row = json.loads(json.dumps(found.as_json()))
    assert row["ok"] == ok
    assert [bound["holds"] for bound in row["bounds"]] == [bound.holds for bound in found.bounds]
    assert {"case", "recovered_in_s", "wrong_claims", "failed_requests", "blind_decisions"} <= set(row)
