"""What two components compare at a handshake."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvcompass.errors import LayoutMismatchError
from kvcompass.plan.layout import check_layout, check_plan_version, layout_digest, layout_fields
from kvcompass.plan.model import Plan, SharingGroup
from tests.models.example_plan import THREE_REGIONS as PLAN

OWN = layout_fields(PLAN, {"tokenizer": "aa"})


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("model", lambda plan: replace(plan, model=replace(plan.model, id="other"))),
        ("tokenizer", lambda plan: replace(plan, model=replace(plan.model, tokenizer="other"))),
        ("chat_template", lambda plan: replace(plan, model=replace(plan.model, chat_template="other"))),
        ("block_size", lambda plan: replace(plan, model=replace(plan.model, block_size=32))),
        ("quantum", lambda plan: replace(plan, lengths=replace(plan.lengths, quantum=256))),
        ("shards", lambda plan: replace(plan, units=plan.units[:1])),
        ("value_bits", lambda plan: replace(plan, index=replace(plan.index, value_bits=64))),
        ("index_layout", lambda plan: replace(plan, index=replace(plan.index, layout="paper"))),
        ("sharing_groups", lambda plan: replace(plan, sharing_groups=(SharingGroup("default", "s"),))),
    ],
)
def test_a_mismatch_names_its_field(field: str, change: Callable[[Plan], Plan]) -> None:
    other = layout_fields(change(PLAN))
    with pytest.raises(LayoutMismatchError) as refused:
        check_layout(OWN, other)
    assert refused.value.field == field
    assert field in str(refused.value)
    assert layout_digest(other) != layout_digest(layout_fields(PLAN))


def test_what_may_change_while_a_fleet_runs_is_no_part_of_the_layout() -> None:
    changed = replace(
        PLAN,
        plan_version=9,
        workers=PLAN.workers[:3],
        edges=PLAN.edges[:2],
        lengths=replace(PLAN.lengths, stretch=0.5),
        wan_ms=tuple(tuple(ms + 1 for ms in row) for row in PLAN.wan_ms),
    )
    check_layout(layout_fields(PLAN), layout_fields(changed))
    assert layout_digest(layout_fields(changed)) == layout_digest(layout_fields(PLAN))


def test_contents_are_compared_where_both_sides_have_them() -> None:
    check_layout(OWN, layout_fields(PLAN))
    check_layout(layout_fields(PLAN), OWN)
    with pytest.raises(LayoutMismatchError) as refused:
        check_layout(OWN, layout_fields(PLAN, {"tokenizer": "bb"}))
    assert refused.value.field == "tokenizer_digest"


@pytest.mark.parametrize("swap", [False, True])
def test_a_field_that_one_side_does_not_know_is_refused(swap: bool) -> None:
    sides = [OWN, OWN | {"new_field": "1"}]
    if swap:
        sides.reverse()
    with pytest.raises(LayoutMismatchError) as refused:
        check_layout(*sides)
    assert refused.value.field == "new_field"


def test_salts_are_not_shown() -> None:
    secret = replace(PLAN, sharing_groups=(SharingGroup("default", "very-secret"),))
    assert "very-secret" not in str(layout_fields(secret))


@pytest.mark.parametrize(
    ("own", "other", "accepted"), [(4, 4, True), (4, 5, True), (5, 4, True), (4, 6, False), (6, 4, False)]
)
def test_plan_versions_may_differ_by_one(own: int, other: int, accepted: bool) -> None:
    if accepted:
        check_plan_version(own, other)
        return
    with pytest.raises(LayoutMismatchError) as refused:
        check_plan_version(own, other)
    assert refused.value.field == "plan_version"


def test_field_order_and_cuts_do_not_fool_the_digest() -> None:
    assert layout_digest({"a": "1", "b": "2"}) == layout_digest({"b": "2", "a": "1"})
    assert layout_digest({"a": "12"}) != layout_digest({"a1": "2"})
    assert len(layout_digest({})) == 32
