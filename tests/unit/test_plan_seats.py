"""Workers keep the index by which requests under way know them, whatever versions of the plan follow."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kvcompass.plan.model import Plan
from kvcompass.plan.seats import is_vacant, seated
from tests.models.plan_changes import histories, running_plan
from tests.models.routing_fleets import make_plan


@given(histories(running_plan(), most=8), st.data())
def test_free_seats_are_given_again_and_no_other(plans: list[Plan], data: st.DataObject):
    seats = plans[0]
    for plan in plans[1:]:
        before = seats
        vacant = [seat for seat, worker in enumerate(before.workers) if is_vacant(worker)]
        free = data.draw(st.sets(st.sampled_from(vacant))) if vacant else set()
        seats = seated(before, plan, free)
        for seat, worker in enumerate(before.workers):
            if seat not in free:
                assert seats.workers[seat].id == worker.id
        taken = [worker for worker in seats.workers if not is_vacant(worker)]
        assert sorted(taken, key=_id) == sorted(plan.workers, key=_id)
        still_free = [seat for seat in free if is_vacant(seats.workers[seat])]
        assert not still_free or len(seats.workers) == len(before.workers)


@given(histories(running_plan(), most=8))
def test_seats_are_kept_and_the_rest_is_the_plans(plans: list[Plan]):
    seats = plans[0]
    for plan in plans[1:]:
        before, seats = seats, seated(seats, plan)
        ids = [worker.id for worker in seats.workers]
        assert ids[: len(before.workers)] == [worker.id for worker in before.workers]
        taken = [worker for worker in seats.workers if not is_vacant(worker)]
        assert sorted(taken, key=_id) == sorted(plan.workers, key=_id)
        assert (seats.regions, seats.wan_ms, seats.edges) == (plan.regions, plan.wan_ms, plan.edges)


def test_a_worker_that_comes_back_gets_a_seat_of_its_own():
    plan = make_plan(workers_a_region=1)
    without = _without(plan, "us-0")
    back = seated(seated(plan, without), plan)
    assert [(worker.id, is_vacant(worker)) for worker in back.workers] == [
        ("us-0", True),
        ("eu-0", False),
        ("asia-0", False),
        ("us-0", False),
    ]


def _without(plan: Plan, worker_id: str) -> Plan:
    return replace(plan, workers=tuple(worker for worker in plan.workers if worker.id != worker_id))


def _id(worker) -> str:
    return worker.id
