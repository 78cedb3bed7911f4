"""A report stream waits as long before it is opened anew as the product's own does, whatever came before."""

import asyncio
from random import Random
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.errors import ProtocolError
from kvcompass.roles.backoff import FIRST_PAUSE_US, LONGEST_PAUSE_US, REFUSED_US, Backoff
from kvcompass.roles.messages import STREAM_FIELD, Refusal, Welcome
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent import report_stream
from services.worker_agent.settings import StreamSettings
from simulator.clock import Action
from simulator.product.report_stream import ReportStream
from tests.models.agent_fleets import agent_plan

LEASE_MS = 3_000
WELCOME = Welcome(1, LEASE_MS, full_report_wanted=False)
NEWER = Refusal(STREAM_FIELD, "a newer stream has taken this one's place")
OTHER_PLAN = Refusal("plan_version", "another plan")
IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=0)

Fate: TypeAlias = Literal["superseded", "broken", "unanswered", "refused"]
"""What becomes of a stream. The first two were welcomed before."""


class LongestPauses(Random):
    """No jitter."""

    def uniform(self, _a: float, b: float) -> float:
        return b


class Reporting:
    """A report of an agent that vouches for its worker."""

    def __init__(self) -> None:
        self.agent = WorkerAgent(agent_plan(shards=1), "us-0", epoch=1)
        self.agent.on_engine_load(IDLE, 0)
        self.agent.on_engine_up(1, same_process=False)
        self.agent.on_attached(replayed=True)
        self.report = UnitReport(self.agent, 0, {}, 1, lease_ms=LEASE_MS)


class Simulated(Reporting):
    """The simulator's stream to a unit that never answers by itself. A `Place` and a `ReportServer`."""

    now_us = here = region = 0

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []
        backoff = Backoff(LongestPauses())
        unit: Any = self
        self.stream = ReportStream(self, self.agent, self.report, unit, 0, backoff, plans_change=True)

    def begin(self, region: int, action: Action, *args: Any) -> None:
        raise AssertionError

    def after(self, delay_us: int, action: Action, *_args: Any) -> None:
        if action == self.stream.dial:
            self.pauses.append(delay_us)

    def send_reliably(self, *_message: Any) -> bool:
        return True

    def count(self, source: int, target: int, size: int) -> None:
        raise AssertionError

    def __getattr__(self, name: str) -> Action:
        if name in ("dialled", "reported", "agent_hung_up"):
            return lambda *_: None
        raise AttributeError(name)

    def run(self, fates: list[Fate]) -> list[int]:
        stream = self.stream
        for fate in fates:
            stream.dial()
            if fate in ("superseded", "broken"):
                stream.answered(stream.attempt, WELCOME)
            match fate:
                case "superseded":
                    stream.answered(stream.attempt, NEWER)
                case "broken":
                    stream.hung_up(stream.attempt)
                case "unanswered":
                    stream._unanswered(stream.attempt)
                case "refused":
                    stream.answered(stream.attempt, OTHER_PLAN)
        return self.pauses


class Served(Reporting):
    """The product's stream, with these fates for connections and a loop that does not sleep."""

    def run(self, fates: list[Fate]) -> list[int]:
        left, pauses = list(fates), list[int]()
        stream = report_stream.ReportStream(
            self.report,
            None,  # type: ignore[arg-type]
            unit_id="unit-0",
            worker_id="us-0",
            vouches=lambda: True,
            may_renew=lambda: True,
            settings=StreamSettings(),
        )

        async def meet() -> None:
            fate = left.pop(0)
            self.report.connect()
            if fate in ("superseded", "broken"):
                self.report.on_message(WELCOME)
            match fate:
                case "superseded":
                    self.report.on_message(NEWER)
                case "broken":
                    raise ProtocolError("the unit ended the stream", field="stream")
                case "unanswered":
                    raise TimeoutError
                case "refused":
                    self.report.on_message(OTHER_PLAN)

        async def pause(delay_s: float) -> None:
            pauses.append(round(1e6 * delay_s))
            if not left:
                raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream, "_stream", meet)
            patch.setattr(report_stream, "new_backoff", lambda: Backoff(LongestPauses()))
            patch.setattr(asyncio, "sleep", pause)
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(stream.run())
        return pauses


@given(st.lists(st.sampled_from(["superseded", "broken", "unanswered", "refused"]), min_size=1, max_size=12))
def test_pauses_are_those_of_the_product(fates: list[Fate]) -> None:
    assert Simulated().run(fates) == Served().run(fates)


def test_streams_that_take_turns_slow_down_and_one_that_broke_does_not() -> None:
    slower = [FIRST_PAUSE_US * 2**step for step in range(5)]
    assert Simulated().run(["superseded"] * 7) == [*slower, LONGEST_PAUSE_US, LONGEST_PAUSE_US]
    assert Simulated().run(["broken"] * 3) == [FIRST_PAUSE_US] * 3
    assert Simulated().run(["unanswered", "unanswered", "broken"]) == [*slower[:2], FIRST_PAUSE_US]
    assert Simulated().run(["refused"]) == [REFUSED_US]
