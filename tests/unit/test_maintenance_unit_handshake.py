"""Neighbouring versions talk, distant ones are told why not."""

import dataclasses

import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.handshake import check_handshake
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from tests.models.replication_fleet import replication_plan

LAYOUT = layout_fields(replication_plan(), {"tokenizer": "ab12"})
GOOD = Handshake("edge-a", 7, PROTOCOL_VERSION, 5, LAYOUT)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"protocol_version": PROTOCOL_VERSION + 1},
        {"plan_version": 4},
        {"plan_version": 6},
        {"layout": {k: v for k, v in LAYOUT.items() if k != "tokenizer_digest"}},
    ],
)
def test_accepted(changes):
    assert check_handshake(dataclasses.replace(GOOD, **changes), LAYOUT, plan_version=5) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"protocol_version": PROTOCOL_VERSION + 2}, "protocol_version"),
        ({"protocol_version": 0}, "protocol_version"),
        ({"epoch": 0}, "epoch"),
        ({"plan_version": 3}, "plan_version"),
        ({"plan_version": 7}, "plan_version"),
        *(({"layout": {**LAYOUT, name: "other"}}, name) for name in LAYOUT),
        ({"layout": {**LAYOUT, "new_field": "1"}}, "new_field"),
        ({"layout": {}}, next(iter(LAYOUT))),
    ],
)
def test_refused_by_name(changes, field):
    refusal = check_handshake(dataclasses.replace(GOOD, **changes), LAYOUT, plan_version=5)
    assert refusal is not None
    assert refusal.field == field
    assert "edge-a" in refusal.message


@pytest.mark.parametrize(
    "name", ["", " ", "edge a", "edge\n", "-a", "édge", "a" * 64, "x" * (4 << 20), "\x1b[2J", "'" * 100]
)
def test_an_id_that_no_plan_can_have_is_refused_and_never_repeated_whole(name):
    refusal = check_handshake(dataclasses.replace(GOOD, component_id=name), LAYOUT, plan_version=5)
    assert refusal is not None
    assert refusal.field == "component_id"
    assert len(refusal.message) < 300
    assert refusal.message.isprintable()


def test_what_differs_is_never_repeated_whole():
    for layout in ({**LAYOUT, "model": "x" * (1 << 20)}, {**LAYOUT, "y" * (1 << 20): "1"}):
        refusal = check_handshake(dataclasses.replace(GOOD, layout=layout), LAYOUT, plan_version=5)
        assert refusal is not None
        assert len(refusal.field) + len(refusal.message) < 600
