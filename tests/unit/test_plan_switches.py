"""A plan whose index no edge could make is refused by a check, before anything is changed."""

from dataclasses import fields, replace

import pytest

from kvcompass.errors import KVCompassError
from services.edge.plan_switch import EdgePlanSwitch
from services.maintenance.plan_switch import UnitPlanSwitch
from tests.models.example_plan import THREE_REGIONS

TOO_LARGE = replace(THREE_REGIONS, index=replace(THREE_REGIONS.index, expected_entries=400_000_000))


@pytest.mark.parametrize(
    "switch",
    [
        EdgePlanSwitch(**{field.name: None for field in fields(EdgePlanSwitch)}),
        UnitPlanSwitch(None, lambda: None),
    ],
    ids=["edge", "unit"],
)
def test_a_table_that_cannot_be_is_refused(switch: EdgePlanSwitch | UnitPlanSwitch):
    with pytest.raises(KVCompassError) as refused:
        switch.check_plan(TOO_LARGE)
    assert refused.value.field == "index.expected_entries"
