"""What the shell of a report stream sends, and when, over a link whose writes take half a lease."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from kvcompass.engine_events import BlockStored
from kvcompass.errors import ProtocolError
from kvcompass.keys.digest import holdings_digest
from kvcompass.roles import unit_report
from kvcompass.roles.messages import AgentToUnit, Edits, FullReport, Renewal, Welcome
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent.report_stream import ReportStream
from services.worker_agent.settings import StreamSettings
from tests.models.agent_fleets import agent_plan

LEASE_MS = 40
BLOCKS = 8
IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)


class SlowCall:
    """The writing half of a gRPC call. `after` runs once a message has gone out."""

    def __init__(self, after: Callable[[AgentToUnit], None]) -> None:
        self.sent: list[AgentToUnit] = []
        self._after = after

    async def write(self, message: AgentToUnit) -> None:
        await asyncio.sleep(LEASE_MS / 2 / 1_000)
        self.sent.append(message)
        self._after(message)


class Scene:
    def __init__(self, lease_ms: int = LEASE_MS) -> None:
        self.renewable = True
        self.agent = WorkerAgent(agent_plan(shards=1), "us-0", epoch=1)
        self.agent.on_engine_load(IDLE, 0)
        self.agent.on_engine_up(1, same_process=False)
        self.agent.on_attached(replayed=True)
        self.report = UnitReport(self.agent, 0, {}, 1, lease_ms=lease_ms)
        self.stream = ReportStream(
            self.report,
            None,  # type: ignore[arg-type]
            unit_id="unit-0",
            worker_id="us-0",
            vouches=lambda: True,
            may_renew=lambda: self.renewable,
            settings=StreamSettings(),
        )
        self.reading: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def store(self, block_hash: int) -> None:
        tokens = np.full(4, block_hash, dtype=np.int32)
        for edits in self.agent.on_batch(
            self.agent.applied + 1, [BlockStored((block_hash,), None, tokens, 4, None)]
        ):
            self.report.on_edits(edits)

    async def write(
        self, *, full_report_wanted: bool, after: Callable[[AgentToUnit], None]
    ) -> list[AgentToUnit]:
        """Everything sent until the reading half is done."""
        self.report.connect()
        self.report.on_message(Welcome(1, LEASE_MS, full_report_wanted=full_report_wanted))
        self.store(100)
        call = SlowCall(after)
        with pytest.raises(ProtocolError, match="the unit ended the stream"):
            async with asyncio.timeout(20):
                await self.stream._write(call, self.reading)  # type: ignore[arg-type]
        return call.sent


async def test_a_report_that_takes_many_leases_is_renewed_between_its_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unit_report, "_CHUNK_KEYS", 1)
    scene = Scene()
    for block_hash in range(1, BLOCKS):
        scene.store(block_hash)

    def after(message: AgentToUnit) -> None:
        if isinstance(message, FullReport) and message.last:
            scene.reading.set_result(None)

    sent = await scene.write(full_report_wanted=True, after=after)
    assert [type(message) for message in sent] == [*[FullReport, Renewal] * (BLOCKS - 1), FullReport]


async def test_a_worker_that_changes_faster_than_the_link_is_renewed_and_described_truly() -> None:
    """Whenever something has been sent, the next edits already wait."""
    scene = Scene()
    at_unit: dict[int, int] = {}

    def after(message: AgentToUnit) -> None:
        if isinstance(message, Edits):
            at_unit.update(zip(message.keys.tolist(), message.tiers.tolist(), strict=True))
        elif isinstance(message, Renewal):
            keys, tiers = np.array(list(at_unit), np.uint64), np.array(list(at_unit.values()), np.uint8)
            assert (message.holdings, message.holdings_digest) == (len(keys), holdings_digest(keys, tiers))
        scene.store(len(at_unit) + 1 + 10 * scene.agent.applied)
        if scene.agent.applied > 2 * BLOCKS:
            scene.reading.set_result(None)

    sent = await scene.write(full_report_wanted=False, after=after)
    assert sum(isinstance(message, Renewal) for message in sent) >= BLOCKS - 1
    assert sum(isinstance(message, Edits) for message in sent) >= BLOCKS - 1


async def test_a_silent_engine_is_not_renewed_and_is_again_once_it_has_answered() -> None:
    scene = Scene()
    scene.renewable = False
    silent: list[AgentToUnit] = []

    def answers() -> None:
        silent.extend(call.sent)
        scene.renewable = True

    def after(message: AgentToUnit) -> None:
        if isinstance(message, Renewal):
            scene.reading.set_result(None)

    scene.report.connect()
    scene.report.on_message(Welcome(1, LEASE_MS, full_report_wanted=False))
    scene.store(100)
    call = SlowCall(after)
    asyncio.get_running_loop().call_later(5 * LEASE_MS / 1_000, answers)
    with pytest.raises(ProtocolError, match="the unit ended the stream"):
        async with asyncio.timeout(20):
            await scene.stream._write(call, scene.reading)  # type: ignore[arg-type]
    assert [type(message) for message in silent] == [Edits], "what it said before is passed on"
    assert [type(message) for message in call.sent] == [Edits, Renewal]


async def test_a_shorter_lease_of_the_next_plan_is_renewed_on_the_stream_that_is_open() -> None:
    """By the plan before, the next renewal would be due in a thousand seconds."""
    scene = Scene(lease_ms=3_000_000)
    scene.report.connect()
    scene.report.on_message(Welcome(1, 3_000_000, full_report_wanted=False))
    sent: list[AgentToUnit] = []

    def after(message: AgentToUnit) -> None:
        sent.append(message)
        if len(sent) == 1:
            asyncio.get_running_loop().call_soon(applies)
        elif len(sent) == BLOCKS:
            scene.reading.set_result(None)

    def applies() -> None:
        scene.report.apply_plan(2, LEASE_MS)
        scene.stream.wake()

    with pytest.raises(ProtocolError, match="the unit ended the stream"):
        async with asyncio.timeout(20):
            await scene.stream._write(SlowCall(after), scene.reading)  # type: ignore[arg-type]
    assert [type(message) for message in sent] == [Renewal] * BLOCKS
