"""An agent process goes over to the next version of its plan."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kvcompass.plan.model import Plan
from services.runtime.grpc_transport import Dialer
from services.worker_agent.served_worker import ServedWorker


class AgentPlanSwitch:
    """`services.runtime.plan_desk.PlannedComponent` of all workers of a process.

    A worker that leaves the plan is served until the plan is settled: edges send to it until then. Between
    two workers the loop goes on, so that leases are renewed: hashing what one holds anew may take a while.
    """

    def __init__(
        self,
        workers: Sequence[ServedWorker],
        dialer: Dialer,
        leave: Callable[[ServedWorker], None],
        close_unused: Callable[[Plan], Awaitable[None]],
    ) -> None:
        """`leave` ends the service of a worker, `close_unused` the connections that a plan does not need."""
        self._workers = workers
        self._dialer = dialer
        self._leave = leave
        self._close_unused = close_unused
        self._plan: Plan | None = None
        self._leaving: list[ServedWorker] = []

    def check_plan(self, plan: Plan) -> None:
        """Errors: SettingsError for an edge's address that may not be dialled in plain text."""
        regions = {served.agent.worker.region for served in self._workers}
        for edge in plan.edges:
            if edge.region in regions:
                self._dialer.component(edge.grpc_address)

    async def apply_plan(self, plan: Plan) -> None:
        """Registers at the lengths of both versions from now on."""
        self._plan = plan
        planned = {worker.id for worker in plan.workers}
        self._leaving = [served for served in self._workers if served.agent.worker.id not in planned]
        for served in [each for each in self._workers if each not in self._leaving]:
            served.apply_plan(plan)
            await asyncio.sleep(0)

    async def settle_plan(self) -> None:
        """Withdraws what only the lengths of the version before had, and ends workers that have left."""
        for served in self._leaving:
            self._leave(served)
        self._leaving = []
        for served in list(self._workers):
            served.settle_plan()
            await asyncio.sleep(0)
        if self._plan is not None:
            await self._close_unused(self._plan)
