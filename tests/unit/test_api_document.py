"""docs/api.md lists every value that an operator may meet in an answer."""

import re
from enum import Enum
from pathlib import Path

import pytest

from kvcompass.fleet import WorkerState
from kvcompass.fleet.view import Standing
from kvcompass.roles.index_follower import FollowerState
from kvcompass.routing import NoWorkerReason, Reason
from kvcompass.tier import Tier
from services.edge.requests.prompts import Unkeyed

_TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
_VALUES = re.findall(r"`([A-Za-z_]+)`", _TEXT.partition("\n## Values\n")[2].partition("\n## ")[0])


@pytest.mark.parametrize("values", [Reason, NoWorkerReason, FollowerState, Unkeyed])
def test_values_told_as_they_are(values: type[Enum]) -> None:
    assert {member.value for member in values} <= set(_VALUES)


@pytest.mark.parametrize("names", [Standing, WorkerState])
def test_names_told_in_lower_case(names: type[Enum]) -> None:
    assert {member.name.lower() for member in names} <= set(_VALUES)


def test_tiers() -> None:
    assert {tier.name for tier in Tier} <= set(_VALUES)


def test_reasons_are_in_the_order_in_which_they_are_given() -> None:
    reasons = [value for value in _VALUES if value in {reason.value for reason in Reason}]
    assert reasons == [reason.value for reason in Reason]
