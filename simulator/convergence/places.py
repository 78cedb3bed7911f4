"""Whose place in the index is whose, where a plan gives that of a worker that has left to another."""

from simulator.convergence.fleet import Fleet
from simulator.convergence.process import Process


def has_place(fleet: Fleet, number: int, process: Process) -> bool:
    """Whether what stands at a worker's place is the worker's, by the plan of a unit or an edge.

    It is the heir's from the version on that has the heir, and before that whose it was, who may have left.
    """
    heir = fleet.shape.heir
    if heir is None:
        return True
    planned = fleet.shape.workers[number]
    if (planned.table, planned.slot) != (heir.table, heir.slot):
        return True
    return (planned is heir) == any(worker.id == heir.id for worker in fleet.plan_of(process).workers)
