"""Hypothesis strategies of changes that a running fleet takes: one version of a plan after another.

Of a plan without a fault they make plans without one.
"""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from kvcompass.plan.assign import assign_workers
from kvcompass.plan.model import Edge, Plan, Worker, worker_slots
from kvcompass.plan.sections import UNASSIGNED
from tests.models.plan_strategies import SHORTEST_LEASE_MS
from tests.models.routing_fleets import make_plan


def running_plan() -> Plan:
    """Three regions of two workers, with the count of places that `kvcompass plan assign` keeps."""
    plan = make_plan()
    return replace(plan, index=replace(plan.index, slots_given=(2, 2, 2)))


RATES = st.floats(min_value=0.01, max_value=1.0)


@st.composite
def successors(draw: st.DrawFn, plan: Plan) -> Plan:
    """The plan after one to four changes, with the next version."""
    for change in draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=4)):
        plan = change(draw, plan)
    workers, given = assign_workers(
        plan.workers, slots=worker_slots(plan.index.value_bits), given=plan.index.slots_given
    )
    index = replace(plan.index, slots_given=given)
    return replace(plan, workers=workers, index=index, plan_version=plan.plan_version + 1)


@st.composite
def histories(draw: st.DrawFn, plan: Plan, most: int = 5) -> list[Plan]:
    """The plan, and up to `most` versions after it."""
    plans = [plan]
    for _ in range(draw(st.integers(1, most))):
        plans.append(draw(successors(plans[-1])))
    return plans


def added(draw: st.DrawFn, plan: Plan, region: str | None = None) -> Plan:
    """A worker more, anywhere in the file; its place is still to be given."""
    name = _free_id(draw, plan)
    worker = Worker(
        id=name,
        region=region or draw(st.sampled_from(plan.regions)),
        url=f"http://{name}:8000",
        events=f"tcp://{name}:5557",
        table=UNASSIGNED,
        slot=UNASSIGNED,
        prefill_ms_per_token=draw(RATES),
        reload_ms_per_token=draw(RATES),
        sharing_group=plan.sharing_groups[0].id,
    )
    at = draw(st.integers(0, len(plan.workers)))
    return replace(plan, workers=(*plan.workers[:at], worker, *plan.workers[at:]))


def _free_id(draw: st.DrawFn, plan: Plan) -> str:
    """An id that no worker of the plan has, nor any of a version before."""
    taken = {worker.id for worker in plan.workers}
    number = draw(st.integers(0, 999_999))
    while (name := f"w-{plan.plan_version}-{number}") in taken:
        number += 1
    return name


def removed(draw: st.DrawFn, plan: Plan) -> Plan:
    """A worker less, as long as there are two."""
    if len(plan.workers) < 3:
        return plan
    gone = draw(st.integers(0, len(plan.workers) - 1))
    return replace(plan, workers=plan.workers[:gone] + plan.workers[gone + 1 :])


def tuned(draw: st.DrawFn, plan: Plan) -> Plan:
    """Another rate, or drained, or not any more."""
    at = draw(st.integers(0, len(plan.workers) - 1))
    worker = replace(plan.workers[at], prefill_ms_per_token=draw(RATES), drain=draw(st.booleans()))
    return replace(plan, workers=(*plan.workers[:at], worker, *plan.workers[at + 1 :]))


def another_wan(draw: st.DrawFn, plan: Plan) -> Plan:
    """The longest way and back stays within the shortest lease that is drawn."""
    longest_ms = (SHORTEST_LEASE_MS - 1) / 2
    factor = draw(st.floats(0.5, min(2.0, longest_ms / max(map(max, plan.wan_ms)))))
    return replace(plan, wan_ms=tuple(tuple(factor * ms for ms in row) for row in plan.wan_ms))


def another_region(draw: st.DrawFn, plan: Plan) -> Plan:
    """A region more, first or last in the file, with an edge and a worker."""
    name, first = f"region-{plan.plan_version}-{len(plan.regions)}", draw(st.booleans())
    if name in plan.regions:
        return plan
    far = [80.0] * len(plan.regions)
    rows = [list(row) for row in plan.wan_ms]
    if first:
        wan = [[0.5, *far], *([80.0, *row] for row in rows)]
        regions = (name, *plan.regions)
    else:
        wan = [*([*row, 80.0] for row in rows), [*far, 0.5]]
        regions = (*plan.regions, name)
    edge = Edge(f"edge-{name}", name, f"{name}:1", f"{name}:2", f"{name}:3")
    grown = replace(plan, regions=regions, wan_ms=tuple(tuple(row) for row in wan), edges=(*plan.edges, edge))
    return added(draw, grown, name)


def other_lengths(draw: st.DrawFn, plan: Plan) -> Plan:
    stretch, context = draw(st.floats(0.2, 1.4)), draw(st.integers(3, 40)) * plan.lengths.quantum
    return replace(
        plan,
        lengths=replace(plan.lengths, stretch=stretch),
        model=replace(plan.model, context_length=context),
    )


CHANGES: tuple[Callable[[st.DrawFn, Plan], Plan], ...] = (
    added,
    removed,
    tuned,
    another_wan,
    another_region,
    other_lengths,
)
