"""What ends in a fleet that stays up is started again, unless it cannot run at all."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from lab.process import LabError, ProcessSpec
from lab.supervisor import AFTER_S, Supervisor


@dataclass
class Pretended:
    """A process that ends when it is told to."""

    spec: ProcessSpec
    running: bool = True
    starts: int = 0
    lives: bool = True

    def start(self) -> None:
        self.running, self.starts = self.lives, self.starts + 1

    def kill(self) -> None:
        pass

    def tail(self) -> str:
        return "last words"


@pytest.fixture
def processes() -> list[Pretended]:
    return [Pretended(ProcessSpec(name, "m", "", "127.0.0.1:1")) for name in ("unit-0", "edge-us")]


def seconds(supervisor: Supervisor, first: float, last: float) -> Iterator[float]:
    now = first
    while now <= last:
        supervisor.look(now)
        yield now
        now += 0.5


def supervised(processes: list[Pretended], said: list[str]) -> Supervisor:
    return Supervisor(cast(Any, processes), said.append)


def test_what_ends_is_started_again_after_its_time_and_nothing_else(processes: list[Pretended]) -> None:
    said: list[str] = []
    supervisor = supervised(processes, said)
    processes[0].running = False
    absent = [now for now in seconds(supervisor, 100.0, 120.0) if not processes[0].running]
    assert absent[-1] - absent[0] < AFTER_S <= absent[-1] - absent[0] + 0.5
    assert [each.starts for each in processes] == [1, 0]
    assert len(said) == 2


def test_what_ends_now_and_then_is_started_each_time(processes: list[Pretended]) -> None:
    supervisor = supervised(processes, [])
    for round_ in range(6):
        processes[1].running = False
        list(seconds(supervisor, 100.0 * round_, 100.0 * round_ + 50.0))
    assert processes[1].starts == 6


def test_what_never_runs_ends_the_lab_with_its_last_words(processes: list[Pretended]) -> None:
    supervisor = supervised(processes, [])
    processes[0].running = processes[0].lives = False
    with pytest.raises(LabError, match="last words"):
        list(seconds(supervisor, 0.0, 100.0))
    assert processes[0].starts == 3
