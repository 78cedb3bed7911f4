"""The stream to a unit: numbers without holes, renewals that describe what was sent, bounded memory."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcompass.errors import LayoutMismatchError
from kvcompass.keys.digest import holdings_digest
from kvcompass.roles import unit_report
from kvcompass.roles.messages import (
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    Refusal,
    Renewal,
    ReportRequest,
    Welcome,
)
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from tests.models.agent_fleets import agent_plan

IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)


def working_agent() -> WorkerAgent:
    agent = WorkerAgent(agent_plan(shards=1), "us-0", epoch=1)
    agent.on_engine_load(IDLE, 0)
    agent.on_engine_up(1, same_process=False)
    agent.on_attached(replayed=True)
    return agent


def store(agent: WorkerAgent, report: UnitReport, block_hash: int) -> None:
    tokens = np.full(4, block_hash, dtype=np.int32)
    event = BlockStored((block_hash,), None, tokens, 4, "GPU")
    for edits in agent.on_batch(agent.applied + 1, [event]):
        report.on_edits(edits)


def sent(report: UnitReport) -> list[AgentToUnit]:
    messages = []
    while (message := report.take()) is not None:
        messages.append(message)
    return messages


class ReportMachine(RuleBasedStateMachine):
    """Against a unit that checks every message. The stream may break, losing what was under way."""

    @initialize(limit=st.integers(1, 6))
    def start(self, limit: int) -> None:
        self.agent = working_agent()
        self.report = UnitReport(self.agent, 0, {}, 1, lease_ms=3_000, pending_limit=limit)
        self.unit: dict[int, int] = {}
        self.sequence = 0
        self.in_report = False
        self.open = False

    @rule(block_hash=st.integers(1, 8))
    def stored(self, block_hash: int) -> None:
        store(self.agent, self.report, block_hash)

    @rule(block_hash=st.integers(1, 8))
    def removed(self, block_hash: int) -> None:
        for edits in self.agent.on_batch(self.agent.applied + 1, [BlockRemoved((block_hash,), "GPU")]):
            self.report.on_edits(edits)

    @rule()
    def cleared(self) -> None:
        for edits in self.agent.on_batch(self.agent.applied + 1, [AllBlocksCleared()]):
            self.report.on_edits(edits)

    @rule()
    def connect(self) -> None:
        hello = self.report.connect()
        assert hello.holdings.sequence >= self.sequence
        self.sequence = hello.holdings.sequence
        self.in_report = False
        self.open = True
        assert self.report.take() is None, "nothing before the welcome"
        self.report.on_message(Welcome(1, 3_000, full_report_wanted=not self.agrees(hello.holdings)))

    @rule()
    def lose_the_stream(self) -> None:
        self.report.disconnected()
        self.open = False

    @rule()
    def renew(self) -> None:
        self.report.renew()

    @rule()
    def ask(self) -> None:
        if self.open:
            self.report.on_message(ReportRequest("test"))

    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            message = self.report.take()
            if message is None:
                break
            assert self.open
            if isinstance(message, Renewal):
                assert message.sequence == self.sequence
                assert self.in_report or self.agrees(message)
                continue
            assert isinstance(message, Edits | FullReport)
            self.sequence += 1
            assert message.sequence == self.sequence
            if isinstance(message, FullReport):
                if message.first:
                    self.unit = {}
                self.in_report = not message.last
            self.unit |= dict(zip(message.keys.tolist(), message.tiers.tolist(), strict=True))
            self.unit = {key: tier for key, tier in self.unit.items() if tier}

    def agrees(self, told: Renewal) -> bool:
        keys = np.array(list(self.unit), dtype=np.uint64)
        tiers = np.array(list(self.unit.values()), dtype=np.uint8)
        return (len(keys), holdings_digest(keys, tiers)) == (told.holdings, told.holdings_digest)

    @invariant()
    def what_is_sent_out_is_what_is_held(self) -> None:
        if not getattr(self, "open", False):
            return
        assert self.report.queued <= self.report._limit
        if not (self.report.queued or self.report._chunks or self.report._report_due):
            keys, tiers = self.agent.told.report(0)
            assert self.unit == dict(zip(keys.tolist(), tiers.tolist(), strict=True))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_report, "_CHUNK_KEYS", 3)


ReportMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestReportMachine = ReportMachine.TestCase


def test_edits_of_many_batches_wait_as_one_message() -> None:
    agent = working_agent()
    report = UnitReport(agent, 0, {}, 1, lease_ms=3_000)
    report.connect()
    for block_hash in range(1, 6):
        store(agent, report, block_hash)
    report.on_message(Welcome(1, 3_000, full_report_wanted=False))
    (edits,) = sent(report)
    assert isinstance(edits, Edits) and len(edits.keys) == 5


def test_too_many_waiting_edits_become_a_full_report() -> None:
    agent = working_agent()
    report = UnitReport(agent, 0, {}, 1, lease_ms=3_000, pending_limit=2)
    report.connect()
    report.on_message(Welcome(1, 3_000, full_report_wanted=False))
    for block_hash in range(1, 5):
        store(agent, report, block_hash)
    assert report.queued <= 2
    messages = sent(report)
    assert [type(message) for message in messages] == [FullReport, FullReport]
    assert (report.overflows, report.full_reports) == (1, 1)


def test_nothing_is_sent_while_the_engine_is_down() -> None:
    agent = working_agent()
    report = UnitReport(agent, 0, {}, 1, lease_ms=3_000)
    report.connect()
    report.on_message(Welcome(1, 3_000, full_report_wanted=True))
    agent.on_engine_down()
    report.renew()
    assert sent(report) == []


def test_a_new_epoch_starts_its_sequence_again() -> None:
    agent = working_agent()
    report = UnitReport(agent, 0, {}, 1, lease_ms=3_000)
    report.connect()
    report.on_message(Welcome(1, 3_000, full_report_wanted=True))
    assert len(sent(report)) == 1
    agent.on_engine_up(2, same_process=False)
    assert report.outdated and report.take() is None
    hello = report.connect()
    assert isinstance(hello, AgentHello)
    assert (hello.handshake.epoch, hello.holdings.sequence, report.outdated) == (2, 0, False)


def test_a_refusal_is_raised_with_its_field() -> None:
    report = UnitReport(working_agent(), 0, {}, 1, lease_ms=3_000)
    with pytest.raises(LayoutMismatchError) as raised:
        report.on_message(Refusal("quantum", "quantum differs"))
    assert raised.value.field == "quantum"
