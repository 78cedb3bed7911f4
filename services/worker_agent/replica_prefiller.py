"""Prefills replicas at one engine, as `kvcompass.roles.replica_prefill` decides."""

import asyncio
from collections.abc import Callable

from kvcompass.roles.messages import PrefillAnswer, ReplicaPrefill
from kvcompass.roles.replica_prefill import PrefillRules, PrefillStep, ReplicaPrefills
from kvcompass.roles.worker_agent import WorkerAgent
from services.runtime.logs import get_logger
from services.runtime.sparse_log import SparseLog
from services.worker_agent.engine_client import EngineError
from services.worker_agent.prefill_calls import PrefillCall, PrefillCalls


class ReplicaPrefiller:
    """Drives one `ReplicaPrefills`. `wake` it when a load came or the agent's state changed."""

    def __init__(
        self,
        agent: WorkerAgent,
        calls: PrefillCalls,
        rules: PrefillRules,
        *,
        answer: Callable[[str, PrefillAnswer], None],
        now_us: Callable[[], int],
    ) -> None:
        """`answer` is given an edge's id and what to tell it."""
        self.role = ReplicaPrefills(agent.worker.sharing_group, rules)
        self._agent = agent
        self._calls = calls
        self._answer = answer
        self._now_us = now_us
        self._woken = asyncio.Event()
        self._prepared_for = -1
        """Restarts of the engine that `calls` knows of."""
        self._log = SparseLog(get_logger("replicas").bind(worker=agent.worker.id), now_us)

    def ask(self, edge_id: str, request: ReplicaPrefill) -> None:
        """An edge asks for a prefill."""
        self.role.ask(edge_id, request, self._now_us())
        self._tell()
        self.wake()

    def wake(self) -> None:
        """Look again at what may be done."""
        self._woken.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._woken.clear()
            step = self.role.turn(self._agent.seen, self._now_us())
            self._tell()
            if step is None:
                await self._until_woken_or_due()
            else:
                await self._go_through(step)

    async def _go_through(self, step: PrefillStep) -> None:
        computed = False
        try:
            computed = await self._computed(step)
        except EngineError as error:
            self._log.warning("a replica's prefill failed", tokens=len(step.tokens), reason=str(error))
        finally:
            self.role.step_ended(self._now_us(), computed=computed)
            self._tell()

    async def _computed(self, step: PrefillStep) -> bool:
        """Whether the engine went through the step before it had to stop. Errors: EngineError."""
        if self._prepared_for != self._agent.engine_restarts:
            await self._calls.prepare()
            self._prepared_for = self._agent.engine_restarts
        call = self._calls.call(step.tokens)
        timeout_s = max(0.001, (step.deadline_us - self._now_us()) / 1e6)
        running = asyncio.create_task(call.run(timeout_s), name="replica prefill")
        running.add_done_callback(lambda _: self.wake())
        try:
            while not running.done():
                self._woken.clear()
                if self.role.must_stop(self._agent.seen, self._now_us()):
                    await self._stop(call)
                    return False
                self.role.turn(self._agent.seen, self._now_us())
                self._tell()
                await self._until_woken_or_due()
            running.result()
            return True
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _stop(self, call: PrefillCall) -> None:
        try:
            await call.abort()
        except EngineError as error:
            self._log.warning("an abort failed: the connection is closed", reason=str(error))

    async def _until_woken_or_due(self) -> None:
        due_us = self.role.due_us
        delay_s = None if due_us is None else max(0, due_us - self._now_us()) / 1e6
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            return

    def _tell(self) -> None:
        for edge_id, answer in self.role.take_answers():
            assert answer.outcome is not None, "every end has its name here"
            self._log.info(f"replica {answer.outcome.value}", edge=edge_id, tokens=answer.tokens)
            self._answer(edge_id, answer)
