"""A plan written and read again is the same plan."""

from dataclasses import fields, replace

import pytest
from hypothesis import example, given, settings

from kvcompass.plan import dump_plan, parse_plan, sections
from kvcompass.plan.model import (
    Edge,
    IndexRule,
    LengthRule,
    MaintenanceUnit,
    ModelIdentity,
    Plan,
    RoutingRule,
    SharingGroup,
    Worker,
)
from tests.models.example_plan import THREE_REGIONS
from tests.models.plan_strategies import plans


@settings(deadline=None, max_examples=40)
@given(plans())
@example(
    replace(THREE_REGIONS, sharing_groups=(SharingGroup("default", '"\\\x00\x7f\r\n\u2028é\U0001f9ed'),))
)
def test_a_dumped_plan_parses_back(plan: Plan) -> None:
    assert parse_plan(dump_plan(plan)) == plan


def test_an_unassigned_plan_survives_too() -> None:
    workers = tuple(replace(worker, table=-1, slot=-1) for worker in THREE_REGIONS.workers)
    plan = replace(THREE_REGIONS, workers=workers)
    assert parse_plan(dump_plan(plan), allow_unassigned=True) == plan


@pytest.mark.parametrize(
    ("section", "model"),
    [
        (sections.MODEL, ModelIdentity),
        (sections.LENGTHS, LengthRule),
        (sections.INDEX, IndexRule),
        (sections.ROUTING, RoutingRule),
        (sections.EDGE, Edge),
        (sections.UNIT, MaintenanceUnit),
        (sections.WORKER, Worker),
        (sections.SHARING_GROUP, SharingGroup),
    ],
)
def test_a_file_can_say_every_field_of_the_model(section: sections.Fields, model: type) -> None:
    assert set(section) == {field.name for field in fields(model)}
