"""Runs the self-test of one worker: asks an edge, asks the engine, listens, and draws the consequence."""

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from kvcompass.plan.model import Plan
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.engine_fit import EngineRefusal
from kvcompass.roles.worker_agent import WorkerAgent
from kvcompass.self_test.explanation import FIELDS, explained, foreign
from kvcompass.self_test.probe import ProbeMessage, Rendering, probe_messages
from kvcompass.self_test.state import Consequence, SelfTest, SelfTestResult, Untestable
from kvcompass.self_test.stored_chains import StoredChains
from kvcompass.self_test.verdict import Difference, Verdict
from services.runtime.logs import get_logger
from services.worker_agent.edge_readings import EdgeReadings, NoReadingError, OldEdgesError
from services.worker_agent.engine_client import DeniedError, EngineClient, EngineError, NotThereError
from services.worker_agent.event_decoder import BatchError, EventDecoder
from services.worker_agent.probing import put_through
from services.worker_agent.settings import SelfTestSettings

_NONCE_BYTES: Final = 12


class _Can(Enum):
    """What a test could do now."""

    WAIT = auto()
    TEST = auto()
    NOT_HEAR = auto()
    """The engine's events do not come, or are not listened to."""
    NOT_MATTER = auto()
    """The worker is refused for something else."""


class _Situation(NamedTuple):
    epoch: int
    """Names the engine process."""
    can: _Can


class SelfTester:
    """Owns the self-test of one worker. `hears` is given every event of its engine, `wake` every change."""

    def __init__(
        self,
        agent: WorkerAgent,
        client: EngineClient,
        edges: EdgeReadings,
        *,
        plan: Callable[[], Plan],
        settings: SelfTestSettings,
        listens_to: Callable[[], str],
        refuse: Callable[[EngineRefusal], None],
        readmit: Callable[[], None],
    ) -> None:
        """Nothing is asked yet.

        Args:
            agent: Of the worker.
            client: Of its engine.
            edges: Of its region.
            plan: The one that runs.
            settings: Of the self-test.
            listens_to: Where the events come from.
            refuse: Called when engine and edges read differently, or its events are another engine's.
            readmit: Called when a worker that was refused reads as edges do again.
        """
        self._agent = agent
        self._client = client
        self._edges = edges
        self._plan = plan
        self._settings = settings
        self._listens_to = listens_to
        self._refuse = refuse
        self._readmit = readmit
        self._heard: StoredChains | None = None
        self._decoder = EventDecoder()
        self._broken = 0
        self._own_refusal: EngineRefusal | None = None
        self._epoch = -1
        self._seen = _Situation(-1, _Can.WAIT)
        """When it last looked."""
        self._changed = asyncio.Event()
        self._log = get_logger("self_test").bind(worker=agent.worker.id)
        self.test = SelfTest(enabled=settings.enabled)
        self.explanation = ""
        """The last difference in words; empty when there is none."""

    def hears(self, payload: bytes) -> None:
        """A batch of the engine came, for the first time or again. Costs nothing between two tests."""
        if self._heard is None:
            return
        try:
            self._heard.hear(self._decoder.decode(payload))
        except BatchError:
            self._broken += 1

    def wake(self) -> None:
        """The agent's state may have changed."""
        if self._situation() != self._seen:
            self._changed.set()

    def shown(self) -> dict[str, Any]:
        """For `/health`."""
        state = self.test.state
        told: dict[str, Any] = {
            "result": state.result.value,
            "reason": self.explanation or state.reason,
            "tests": self.test.tests,
        }
        if state.agreement is not None:
            told["agreed_tokens"] = state.agreement.tokens
            told["more_at_the_end"] = state.agreement.tail
        if state.difference is not None:
            told["difference"] = asdict(state.difference)
        return told

    async def run(self) -> None:
        """Run until cancelled, or to its end where it is off."""
        while self._settings.enabled:
            self._changed.clear()
            situation = self._seen = self._situation()
            if situation.epoch != self._epoch:
                self._epoch = situation.epoch
                self.test.begin_anew()
                self.explanation = ""
            if situation.can is _Can.NOT_HEAR:
                self.test.on_untestable(Untestable.NO_EVENTS, self._agent.engine.silence)
            elif situation.can is _Can.NOT_MATTER:
                self.test.on_untestable(Untestable.REFUSED_BEFORE)
            elif situation.can is _Can.TEST and self.test.pause_ms is not None:
                await self._once(situation)
            await self._rest(situation)

    def _situation(self) -> _Situation:
        agent = self._agent
        match agent.state:
            case AgentState.EXACT | AgentState.PARTIAL:
                can = _Can.TEST
            case AgentState.REFUSED:
                can = _Can.TEST if agent.refusal is self._own_refusal else _Can.NOT_MATTER
            case AgentState.SILENT | AgentState.APPROXIMATE:
                can = _Can.NOT_HEAR
            case _:
                can = _Can.WAIT
        return _Situation(agent.epoch, can)

    async def _rest(self, situation: _Situation) -> None:
        """Return when the next test is due, or the situation is another one."""
        pause_ms = self.test.pause_ms if situation.can is _Can.TEST else None
        pause_s = None if pause_ms is None else pause_ms / 1_000 * random.uniform(0.75, 1.25)  # noqa: S311
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._changed.wait()

    async def _once(self, situation: _Situation) -> None:
        plan, facts = self._plan(), self._agent.engine.facts
        if facts is not None and facts.part != "both":
            self.test.on_untestable(Untestable.HALF_OF_A_PAIR)
            return
        told = 0 if facts is None else facts.page_size or 0
        page = max(told, self._agent.holdings.block_size)
        messages = probe_messages(secrets.token_hex(_NONCE_BYTES), page)
        try:
            rendering = await self._edges.read(messages)
        except OldEdgesError:
            self.test.on_untestable(Untestable.OLD_EDGES)
            return
        except NoReadingError as error:
            self.test.on_no_answer(f"no edge of the region tells how it reads: {error}")
            return
        heard, unread = StoredChains(), self._unread
        verdict = await self._through_engine(plan, messages, rendering, heard)
        if verdict is not None and self._situation() == situation:
            complete = self._unread == unread and not heard.overflowed
            others = heard.blocks + self._agent.holdings.blocks > 0
            await self._take(verdict, others_told=others and complete)

    @property
    def _unread(self) -> int:
        """What came while it was listened to, and may have been of the probe. Monotonic."""
        counters = self._decoder.counters
        return self._broken + counters.malformed_events + counters.unknown_events + counters.other_groups

    async def _through_engine(
        self, plan: Plan, messages: Sequence[ProbeMessage], rendering: Rendering, heard: StoredChains
    ) -> Verdict | None:
        """Return None where there is nothing to judge, which the test has been told."""
        self._heard = heard
        try:
            return await put_through(
                self._client,
                heard,
                messages,
                rendering,
                plan=plan,
                worker=self._agent.worker,
                settings=self._settings,
            )
        except NotThereError as error:
            self.test.on_untestable(Untestable.NO_CHAT_ROUTE, str(error))
        except DeniedError as error:
            self.test.on_untestable(Untestable.PROBE_DENIED, str(error))
        except EngineError as error:
            self.test.on_no_answer(str(error))
        finally:
            self._heard = None
        return None

    async def _take(self, verdict: Verdict, *, others_told: bool) -> None:
        spelled = await self._explained(verdict) if isinstance(verdict, Difference) else ""
        consequence = self.test.on_verdict(verdict, others_told=others_told)
        state = self.test.state
        if state.is_foreign:
            self.explanation = foreign(self._agent.worker.url, self._listens_to())
        elif spelled or state.result is not SelfTestResult.REFUSED:
            self.explanation = spelled
        self._log.info("tested", result=state.result.value, reason=state.reason, difference=self.explanation)
        if consequence is Consequence.REFUSE:
            field = FIELDS[verdict.cause] if isinstance(verdict, Difference) else "events"
            self._own_refusal = EngineRefusal(field, self.explanation)
            self._refuse(self._own_refusal)
        elif consequence is Consequence.READMIT:
            self._readmit()

    async def _explained(self, difference: Difference) -> str:
        try:
            spelled = await self._edges.spell((*difference.expected, *difference.observed))
        except NoReadingError:
            spelled = {}
        return explained(difference, spelled)
