"""An agent and a maintenance unit coupled by hand: whatever is lost, one lease later they agree."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.plan.layout import layout_fields
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import Refusal
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from tests.models.agent_fleets import agent_plan
from tests.models.replication_table import DictTables

PLAN = agent_plan(shards=1)
LAYOUT = layout_fields(PLAN)
SECOND_US = 1_000_000
IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)


class Couple:
    """One worker, one unit, a virtual clock and a stream that can break."""

    def __init__(self) -> None:
        self.now_us = 0
        self.agent = WorkerAgent(PLAN, "us-0", epoch=1)
        self.report = UnitReport(self.agent, 0, LAYOUT, PLAN.plan_version, lease_ms=3_000, pending_limit=4)
        self.start_unit()
        self.engine_answers()

    def start_unit(self) -> None:
        """A unit that knows nothing: the stream to the one before is gone."""
        self.report.disconnected()
        self.session = None
        self.unit = MaintenanceUnit(
            PLAN, "unit-0", epoch=1 + self.now_us, layout=LAYOUT, tables=DictTables(), now_us=self.now_us
        )

    def engine_answers(self) -> None:
        self.agent.on_engine_load(IDLE, self.now_us)
        if not self.agent.vouches:
            self.agent.on_engine_up(self.agent.epoch, same_process=True)
            self.agent.on_attached(replayed=True)

    def engine_restarts(self, *replayed: EngineEvent) -> None:
        """Its ring has a batch for each of `replayed`."""
        for edits in self.agent.on_engine_up(self.agent.epoch + 1, same_process=False):
            self.report.on_edits(edits)
        for event in replayed:
            self.batch(event)
            self.exchange()
            self.unit.tick(self.now_us)
            assert not self.unit.holdings("us-0")[0].size, "part of a past is no truth"
        self.agent.on_attached(replayed=True)

    def batch(self, *events: EngineEvent) -> None:
        for edits in self.agent.on_batch(self.agent.applied + 1, events):
            self.report.on_edits(edits)

    def break_stream(self) -> None:
        """What was taken but not delivered is lost."""
        self.report.take()
        self.report.disconnected()
        self.session = None

    def exchange(self) -> None:
        """Deliver whatever there is, both ways."""
        if not self.agent.vouches:
            return
        if self.session is None or self.report.outdated:
            opened = self.unit.agent_connected(self.report.connect(), self.now_us)
            assert not isinstance(opened, Refusal), opened
            self.session, welcome = opened
            self.report.on_message(welcome)
        while (message := self.report.take()) is not None:
            for answer in self.unit.on_agent_message(self.session, message, self.now_us):
                assert not isinstance(answer, Refusal), answer
                self.report.on_message(answer)

    def pass_time(self, seconds: float) -> None:
        """A renewal a second, and the unit's clock."""
        for _ in range(int(seconds)):
            self.now_us += SECOND_US
            self.report.renew()
            self.exchange()
            self.unit.tick(self.now_us)

    def agree(self) -> bool:
        held = self.agent.told.report(0)
        known = self.unit.holdings("us-0")
        return _pairs(*held) == _pairs(*known)


def _pairs(keys: np.ndarray, tiers: np.ndarray) -> set[tuple[int, int]]:
    return set(zip(keys.tolist(), tiers.tolist(), strict=True))


def block(block_hash: int, medium: str) -> BlockStored:
    return BlockStored((block_hash,), None, np.full(4, block_hash, dtype=np.int32), 4, medium)


STEPS = st.one_of(
    st.builds(
        lambda h, medium: ("store", h, medium), st.integers(1, 9), st.sampled_from(["GPU", "CPU_PINNED"])
    ),
    st.builds(
        lambda h, medium: ("remove", h, medium), st.integers(1, 9), st.sampled_from(["GPU", "CPU_PINNED"])
    ),
    st.sampled_from([("clear",), ("exchange",), ("exchange",), ("break",), ("down",), ("up",), ("restart",)]),
    st.builds(lambda seconds: ("pass", seconds), st.integers(1, 5)),
    st.just(("unit restarts",)),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_they_agree_one_lease_after_the_last_fault(steps: list[tuple]) -> None:
    couple = Couple()
    for step in steps:
        match step:
            case ("store", block_hash, medium):
                couple.batch(block(block_hash, medium))
            case ("remove", block_hash, medium):
                couple.batch(BlockRemoved((block_hash,), medium))
            case ("clear",):
                couple.batch(AllBlocksCleared())
            case ("exchange",):
                couple.exchange()
            case ("break",):
                couple.break_stream()
            case ("down",):
                couple.agent.on_engine_down()
            case ("up",):
                couple.engine_answers()
            case ("restart",):
                couple.engine_restarts()
            case ("pass", seconds):
                couple.pass_time(seconds)
            case _:
                couple.start_unit()
    couple.engine_answers()
    couple.pass_time(8)
    assert couple.agree()
    assert couple.unit.settled


def test_an_engine_that_stays_down_is_cleared_by_its_lease() -> None:
    couple = Couple()
    couple.batch(block(1, "GPU"))
    couple.exchange()
    assert couple.agree() and couple.unit.entries == 1
    couple.agent.on_engine_down()
    couple.pass_time(4)
    assert couple.unit.entries == 0
    assert len(couple.agent.holdings) == 1
    couple.engine_answers()
    couple.pass_time(3)
    assert couple.agree() and couple.unit.entries == 1


def test_nothing_is_claimed_of_a_past_that_is_still_being_replayed() -> None:
    couple = Couple()
    couple.batch(block(1, "GPU"))
    couple.exchange()
    assert couple.agree() and couple.unit.entries == 1
    couple.engine_restarts(block(2, "GPU"), block(3, "GPU"), BlockRemoved((2,), "GPU"))
    couple.exchange()
    assert couple.agree() and couple.unit.entries == 1
