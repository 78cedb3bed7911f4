"""Places in the index (a table, a slot of it) that a plan gives to a worker after another had them."""

from collections.abc import Iterable, Mapping

from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.sections import UNASSIGNED

Place = tuple[int, int]
"""Table and slot."""


def places_given(plan: Plan) -> dict[int, int]:
    """By table, how many slots were ever given: what `index.slots_given` says, and no fewer than are seen."""
    given = dict(enumerate(plan.index.slots_given))
    for worker in _placed(plan.workers):
        given[worker.table] = max(given.get(worker.table, 0), worker.slot + 1)
    return given


def vacant_places(plan: Plan) -> list[Place]:
    """Places that were given and that no worker of the plan has, lowest first."""
    return vacant(plan.workers, places_given(plan))


def vacant(workers: Iterable[Worker], given: Mapping[int, int]) -> list[Place]:
    """Of so many slots given by table, those that none of the workers has, lowest first."""
    taken = {(worker.table, worker.slot) for worker in workers}
    return [
        (table, slot)
        for table, slots in sorted(given.items())
        for slot in range(slots)
        if (table, slot) not in taken
    ]


def given_again(before: Plan, plan: Plan) -> list[Worker]:
    """Workers that the next version adds at places which somebody may have had before them.

    `before` may be seated (`kvcompass.plan.seats`).
    """
    known = {worker.id for worker in _placed(before.workers)}
    given = places_given(before)
    return [
        worker
        for worker in plan.workers
        if worker.id not in known and worker.slot < given.get(worker.table, 0)
    ]


def _placed(workers: Iterable[Worker]) -> list[Worker]:
    return [worker for worker in workers if worker.table != UNASSIGNED]
