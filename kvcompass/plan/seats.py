"""The plan as a running edge holds it: workers keep the index by which requests under way know them."""

from collections.abc import Collection
from dataclasses import replace

from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.sections import UNASSIGNED


def seated(before: Plan, plan: Plan, free: Collection[int] = ()) -> Plan:
    """Return the next version of a plan with its workers in the order of the one before.

    A worker that the next version does not have keeps its seat and has no place (table and slot -1): nothing
    of any view is read as its own and no request may go to it. Workers that are new, or come back, take free
    seats, then seats behind all others; so there are never many more seats than workers.

    Args:
        before: A plan, or what this gave for the version before.
        plan: The next version, as parsed.
        free: Vacant seats of `before` that no request under way is at.
    """
    stay = {worker.id for worker in before.workers if not is_vacant(worker)}
    known = {worker.id: worker for worker in plan.workers if worker.id in stay}
    coming = [worker for worker in plan.workers if worker.id not in stay]
    workers = []
    for seat, worker in enumerate(before.workers):
        if is_vacant(worker):
            workers.append(coming.pop(0) if coming and seat in free else worker)
        else:
            workers.append(known.get(worker.id) or replace(worker, table=UNASSIGNED, slot=UNASSIGNED))
    return replace(plan, workers=(*workers, *coming))


def is_vacant(worker: Worker) -> bool:
    """Whether a seat's worker has left the plan."""
    return worker.slot == UNASSIGNED
