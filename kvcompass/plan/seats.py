"""The plan as a running edge holds it: workers keep the index by which requests under way know them."""

from dataclasses import replace

from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.sections import UNASSIGNED


def seated(before: Plan, plan: Plan) -> Plan:
    """Return the next version of a plan with its workers in the order of the one before, new ones behind.

    A worker that the next version does not have keeps its seat and has no place (table and slot -1): nothing
    of any view is read as its own and no request may go to it. A removed worker that comes back gets a seat
    like a new one.

    Args:
        before: A plan, or what this gave for the version before.
        plan: The next version, as parsed.
    """
    coming = {worker.id: worker for worker in plan.workers}
    workers = []
    for worker in before.workers:
        stays = None if is_vacant(worker) else coming.pop(worker.id, None)
        workers.append(stays or replace(worker, table=UNASSIGNED, slot=UNASSIGNED))
    return replace(plan, workers=(*workers, *coming.values()))


def is_vacant(worker: Worker) -> bool:
    """Whether a seat's worker has left the plan."""
    return worker.slot == UNASSIGNED
