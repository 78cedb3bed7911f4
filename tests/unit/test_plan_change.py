"""What a running fleet can take of a new plan, and what it is told of the rest."""

from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from kvcompass.plan import dump_plan, parse_plan
from kvcompass.plan.change import check_successor, plan_changes
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan, SharingGroup
from tests.models.example_plan import THREE_REGIONS
from tests.models.plan_changes import added, histories, running_plan, successors
from tests.models.plan_strategies import plans

Drawn = TypeVar("Drawn")


def _least(strategy: st.SearchStrategy[Drawn], label: object = None) -> Drawn:
    return find(strategy, lambda _: True)


@given(plans())
def test_a_plan_does_not_differ_from_itself(plan: Plan):
    assert plan_changes(plan, parse_plan(dump_plan(plan))) == ()


@given(successors(running_plan()))
def test_workers_regions_rates_wan_and_lengths_may_change(plan: Plan):
    changes = plan_changes(running_plan(), plan)
    assert [change for change in changes if change.is_refused] == []
    assert check_successor(running_plan(), plan) == ""


@given(histories(THREE_REGIONS))
def test_every_version_that_the_laws_are_tried_on_is_a_plan_without_a_fault(plans: list[Plan]):
    """An edge never meets two workers of one id, so no law of an edge may be tried on them."""
    for plan in plans:
        assert parse_plan(dump_plan(plan)) == plan


def test_two_that_come_in_one_version_have_two_ids_though_one_has_left_between_them():
    """The plan has as many workers before each of them."""
    first = added(_least, running_plan())
    plan = added(_least, replace(first, workers=first.workers[:-1]))
    ids = [worker.id for worker in plan.workers]
    assert len(set(ids)) == len(ids)


@given(plans(), plans())
def test_a_change_of_the_layout_is_always_refused(old: Plan, new: Plan):
    """The handshake and this must never disagree: what is let through here could not talk afterwards."""
    if layout_fields(old) != layout_fields(new):
        assert any(change.is_refused for change in plan_changes(old, new))


@given(histories(running_plan()))
def test_a_place_that_others_read_under_another_name_is_refused(plans: list[Plan]):
    """Of any two versions: where one place means two workers, the change is refused."""
    first, last = plans[0], plans[-1]
    before = {(worker.table, worker.slot): worker.id for worker in first.workers}
    stolen = [
        replace(worker, table=first.workers[0].table, slot=first.workers[0].slot, id="thief")
        for worker in last.workers[-1:]
    ]
    new = replace(last, workers=(*(w for w in last.workers if w.id != first.workers[0].id), *stolen))
    refused = [change.field for change in plan_changes(first, new) if change.is_refused]
    assert before[stolen[0].table, stolen[0].slot] != "thief"
    assert "worker.thief.slot" in refused


_PLAN = THREE_REGIONS
_W = _PLAN.workers


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (replace(_PLAN, fleet="other"), "fleet.name"),
        (replace(_PLAN, model=replace(_PLAN.model, id="other")), "model.id"),
        (replace(_PLAN, model=replace(_PLAN.model, block_size=32)), "model.block_size"),
        (replace(_PLAN, lengths=replace(_PLAN.lengths, quantum=256)), "lengths.quantum"),
        (replace(_PLAN, index=replace(_PLAN.index, value_bits=64)), "index.value_bits"),
        (replace(_PLAN, index=replace(_PLAN.index, slots_given=(2, 1, 2))), "index.slots_given"),
        (replace(_PLAN, index=replace(_PLAN.index, slots_given=(2, 2))), "index.slots_given"),
        (replace(_PLAN, units=_PLAN.units[:1]), "unit"),
        (
            replace(_PLAN, units=(replace(_PLAN.units[0], address="h:1"), _PLAN.units[1])),
            "unit.unit-0.address",
        ),
        (
            replace(_PLAN, edges=(replace(_PLAN.edges[0], peer_address="h:1"), *_PLAN.edges[1:])),
            "edge.edge-us.peer_address",
        ),
        (replace(_PLAN, workers=(replace(_W[0], slot=9), *_W[1:])), "worker.worker-us-0.slot"),
        (replace(_PLAN, workers=(replace(_W[0], url="http://h:1"), *_W[1:])), "worker.worker-us-0.url"),
        (replace(_PLAN, workers=(replace(_W[0], dp_rank=0), *_W[1:])), "worker.worker-us-0.dp_rank"),
        (
            replace(_PLAN, workers=(replace(_W[0], holdings="predicted"), *_W[1:])),
            "worker.worker-us-0.holdings",
        ),
        (replace(_PLAN, sharing_groups=(SharingGroup("default", "salt"),)), "sharing_group.default"),
        (
            replace(_PLAN, workers=(*_W, replace(_W[0], id="new", slot=5, region="eu"))),
            "worker.new.table",
        ),
        (
            replace(
                _PLAN,
                regions=_PLAN.regions[:2],
                wan_ms=tuple(row[:2] for row in _PLAN.wan_ms[:2]),
                edges=_PLAN.edges[:2],
                workers=_W[:4],
            ),
            "region.asia",
        ),
    ],
)
def test_what_is_refused_says_which_field_why_and_what_instead(new: Plan, field: str):
    refused = [change for change in plan_changes(_PLAN, new) if change.is_refused]
    assert [change.field for change in refused] == [field]
    assert refused[0].why and refused[0].roll


@pytest.mark.parametrize(
    ("version", "told"), [(1, "raise it to 2"), (3, "apply 2 first"), (0, "raise it to 2")]
)
def test_versions_follow_one_by_one(version: int, told: str):
    assert told in check_successor(_PLAN, replace(_PLAN, plan_version=version))


@given(plans(), st.data())
def test_an_address_of_operations_may_always_change(plan: Plan, data: st.DataObject):
    at = data.draw(st.integers(0, len(plan.workers) - 1))
    moved = replace(plan.workers[at], ops_address="elsewhere:1")
    new = replace(plan, workers=(*plan.workers[:at], moved, *plan.workers[at + 1 :]))
    assert [change.field for change in plan_changes(plan, new)] == [f"worker.{moved.id}.ops_address"]
    assert not plan_changes(plan, new)[0].is_refused
