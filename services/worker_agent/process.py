"""A worker agent process, assembled: workers that share channels, a ZMQ context and a listener."""

import asyncio
from pathlib import Path

import grpc.aio
import zmq.asyncio
from prometheus_client import CollectorRegistry

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component
from services.runtime.certificates import certificate_ends
from services.runtime.grpc_transport import PROMPT_ANSWER_MS, Dialer
from services.runtime.logs import get_logger
from services.runtime.new_backoff import new_backoff
from services.runtime.ops import OpsServer
from services.runtime.plain_text import transport_mode
from services.runtime.plan_desk import PlanDesk
from services.runtime.settings import SettingsError
from services.runtime.version import VERSION
from services.worker_agent.health import agent_health
from services.worker_agent.metrics import AgentCollector
from services.worker_agent.plan_switch import AgentPlanSwitch
from services.worker_agent.served_worker import ServedWorker
from services.worker_agent.settings import WorkerAgentSettings, check_settings


class AgentProcess:
    """Lives inside a running event loop."""

    def __init__(self, settings: WorkerAgentSettings, plan: Plan, plan_path: Path) -> None:
        """Errors: SettingsError for a worker that is not in the plan."""
        check_settings(settings)
        known = [worker.id for worker in plan.workers]
        for worker_id in settings.workers:
            if worker_id not in known:
                raise SettingsError(
                    f"{worker_id!r} is no worker of the plan; it has {', '.join(known)}", field="workers"
                )
        self._dialer = Dialer(
            settings.connect_via, settings.tls, insecure=settings.insecure, answer_ms=PROMPT_ANSWER_MS
        )
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._context = zmq.asyncio.Context()
        self._settings = settings
        self._layout = layout_fields(plan)
        self._log = get_logger("process")
        self.workers = [self._served(plan, worker_id) for worker_id in settings.workers]
        registry = CollectorRegistry()
        registry.register(AgentCollector(self.workers))
        desk = PlanDesk(
            Component.AGENT,
            settings.workers,
            plan,
            plan_path,
            key=settings.plan_key,
            component=AgentPlanSwitch(self.workers, self._dialer, self._leave, self._close_unused),
        )
        self.ops = OpsServer(
            settings.ops_address,
            lambda: agent_health(self.workers),
            registry,
            plan=desk,
            certificate_ends=certificate_ends(settings.tls),
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve until cancelled; then close everything."""
        await self.ops.start()
        self._log.info(
            "agent is up",
            version=VERSION,
            workers=self._settings.workers,
            ops_port=self.ops.port,
            transport=transport_mode(self._settings),
        )
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self.workers:
                    name = worker.agent.worker.id
                    self._tasks[name] = group.create_task(self._keep(worker), name=f"worker {name}")
                # Whose last worker has left the plan waits to be ended.
                group.create_task(asyncio.Event().wait(), name="until cancelled")
        finally:
            await self.ops.stop()
            await asyncio.gather(*(channel.close(None) for channel in self._channels.values()))
            self._context.destroy(linger=0)

    def _served(self, plan: Plan, worker_id: str) -> ServedWorker:
        return ServedWorker(
            plan,
            worker_id,
            self._settings,
            layout=self._layout,
            dialer=self._dialer,
            channel=self._channel,
            context=self._context,
        )

    async def _keep(self, worker: ServedWorker) -> None:
        """Serve a worker until cancelled. An error that nobody foresaw costs this worker, and no other.

        What it knew may be half of a change: it is built anew, under a new epoch, and learns from the start.
        """
        backoff = new_backoff()
        while True:
            try:
                # A task of its own: a group that fails leaves its mark of cancellation on the task it is in.
                await asyncio.create_task(worker.run(), name=f"life of {worker.agent.worker.id}")
            except Exception:
                name, task = worker.agent.worker.id, asyncio.current_task()
                if task is not None and task.cancelling():
                    self._log.exception("a worker failed while it was ended", worker=name)
                    return
                self._log.exception("a worker failed and begins anew", worker=name)
                anew = self._served(worker.plan, name)
                anew.failures = worker.failures + 1
                self.workers[self.workers.index(worker)] = worker = anew
            await asyncio.sleep(backoff.next_us() / 1e6)

    def _leave(self, worker: ServedWorker) -> None:
        name = worker.agent.worker.id
        self.workers[:] = [each for each in self.workers if each.agent.worker.id != name]
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = self._dialer.channel(address)
        return self._channels[address]

    async def _close_unused(self, plan: Plan) -> None:
        """Who has left the plan is pinged no more."""
        dialled = {unit.address for unit in plan.units} | {edge.grpc_address for edge in plan.edges}
        for address in self._channels.keys() - dialled:
            await self._channels.pop(address).close(None)
