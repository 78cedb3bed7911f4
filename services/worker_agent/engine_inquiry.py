"""Finds out what an engine is: before each attach, and now and then for as long as it does not say."""

import asyncio
from collections.abc import Callable
from typing import Final, Literal

import structlog

from kvcompass.engine_facts import EngineFacts
from kvcompass.roles.holdings import ShardEdits
from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent.engine_client import EngineClient, EngineError, MalformedError, NotThereError
from services.worker_agent.engine_facts import ask_facts

_ATTEMPTS: Final = 3
"""Then an engine that answers too late is attached to by what was known of it, or by what the plan says."""
_PERIOD_S: Final = 60.0
"""Between two questions to an engine that is attached to and has not said what it is."""


class EngineInquiry:
    """Asks one engine and tells its agent; `publish` gets what a refusal withdraws."""

    def __init__(
        self,
        agent: WorkerAgent,
        client: EngineClient,
        engine: Literal["sglang", "vllm"],
        *,
        publish: Callable[[tuple[ShardEdits, ...]], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """`engine`: its kind, by the settings."""
        self._agent = agent
        self._client = client
        self._engine = engine
        self._publish = publish
        self._log = log
        self._failures = 0
        self.problem = ""
        """Why it is not known what the engine is; empty when it is."""

    async def ask(self) -> None:
        """Ask the engine what it is. Errors: EngineError while it may only be slow to say."""
        try:
            facts = await ask_facts(self._client, self._engine)
        except EngineError as error:
            self._failures += 1
            lasting = isinstance(error, NotThereError | MalformedError)
            if not lasting and self._failures < _ATTEMPTS:
                raise
            if self.problem != str(error):
                self._log.warning("the engine does not say what it is", reason=str(error))
            self.problem = str(error)
            if lasting:
                self._agent.on_facts_unknown()
            return
        self._take(facts)

    async def keep_asking(self, relearn: Callable[[], None]) -> None:
        """Whenever it is not known what the engine is, ask it now and then. Runs until cancelled.

        `relearn` is called when what is held was learned by other rules than follow from the facts.
        """
        while True:
            if self._agent.is_learned_otherwise:
                self._agent.engine.forget_holdings()
                relearn()
            await asyncio.sleep(_PERIOD_S)
            if self.problem:
                try:
                    self._take(await ask_facts(self._client, self._engine))
                except EngineError as error:
                    self.problem = str(error)

    def _take(self, facts: EngineFacts) -> None:
        if facts != self._agent.engine.facts:
            self._log.info("engine", engine=facts.engine, version=facts.version, page_size=facts.page_size)
        self.problem, self._failures = "", 0
        self._publish(self._agent.on_engine_facts(facts))
