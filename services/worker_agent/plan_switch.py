"""An agent process goes over to the next version of its plan."""

from collections.abc import Callable, Sequence

from kvcompass.plan.model import Plan
from services.worker_agent.served_worker import ServedWorker


class AgentPlanSwitch:
    """`services.runtime.plan_desk.PlannedComponent` of all workers of a process.

    A worker that leaves the plan is served until the plan is settled: edges send to it until then.
    """

    def __init__(self, workers: Sequence[ServedWorker], leave: Callable[[ServedWorker], None]) -> None:
        """`leave` ends the service of a worker."""
        self._workers = workers
        self._leave = leave
        self._leaving: list[ServedWorker] = []

    def check_plan(self, plan: Plan) -> None:
        """Any plan that may follow is taken."""

    def apply_plan(self, plan: Plan) -> None:
        """Registers at the lengths of both versions from now on."""
        planned = {worker.id for worker in plan.workers}
        self._leaving = [served for served in self._workers if served.agent.worker.id not in planned]
        for served in self._workers:
            if served not in self._leaving:
                served.apply_plan(plan)

    def settle_plan(self) -> None:
        """Withdraws what only the lengths of the version before had, and ends workers that have left."""
        for served in self._leaving:
            self._leave(served)
        self._leaving = []
        for served in self._workers:
            served.settle_plan()
