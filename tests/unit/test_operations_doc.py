"""docs/operations.md knows every state, and every alert, by its own name."""

import re
from pathlib import Path

import pytest

from kvcompass.fleet.view import Standing
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.free_places import PlaceState
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.unit_snapshot_bytes import RestoreOutcome
from kvcompass.roles.upstream_choice import SourceKind
from kvcompass.roles.worker_source import Registration
from kvcompass.self_test.state import SelfTestResult
from kvcompass.self_test.verdict import Cause
from lab.dashboards.alerts import alerts
from lab.dashboards.catalogue import families
from services.maintenance.unit_state import UnitState

TEXT = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")


@pytest.mark.parametrize("states", [FollowerState, Registration, AgentState, SourceKind])
def test_every_state_has_a_line(states: type[FollowerState]) -> None:
    for state in states:
        assert re.search(rf"^\| `{state.value}` \|", TEXT, re.MULTILINE), state


def test_every_state_of_a_unit_and_every_outcome_of_its_snapshot_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert {state.value for state in (*UnitState, *RestoreOutcome)} <= named


def test_every_state_of_a_place_has_a_line_in_plan_md() -> None:
    text = (Path(__file__).parents[2] / "docs" / "plan.md").read_text("utf-8")
    for state in PlaceState:
        assert re.search(rf"^\| `{state.value}` \|", text, re.MULTILINE), state


def test_every_standing_has_a_line() -> None:
    for standing in Standing:
        assert f"| `{standing.name.lower()}` |" in TEXT


def test_every_alert_is_in_the_runbook_and_no_other() -> None:
    told = set(re.findall(r"^\| `(KVCompass\w+)` \|", TEXT, re.MULTILINE))
    assert told == {alert.name for alert in alerts()}


def test_every_metric_that_is_named_exists() -> None:
    named = set(re.findall(r"`(kvcompass_\w+)`", TEXT))
    assert named and named <= set(families())


@pytest.mark.parametrize("words", [SelfTestResult, Cause])
def test_every_result_and_cause_of_a_self_test_has_a_line(words: type[SelfTestResult]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "self-test.md").read_text("utf-8")
    for word in words:
        assert re.search(rf"^\| `{word.value}` \|", text, re.MULTILINE), word
