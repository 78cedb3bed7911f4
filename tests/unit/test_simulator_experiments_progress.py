"""The line that says how long a sweep will take."""

import io
import re

import pytest
from rich.console import Console

from simulator.experiments import progress
from simulator.experiments.cell import Cell, Setting
from simulator.experiments.progress import SweepProgress, duration

CELLS = [Cell(Setting(requests=900, warm_up=100), "random", 1.0, None, seed) for seed in range(4)]


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (3_599, "59 min 59 s"), (3_660, "1 h 01 min")],
)
def test_durations_are_said_as_people_do(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_the_first_requests_tell_nothing_of_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()
    monkeypatch.setattr(progress, "time", clock)
    out = io.StringIO()
    with SweepProgress(Console(file=out, width=100)) as told:
        told.planned(CELLS[:2], CELLS[:2])
        for ended in (20, 60):
            clock.now_s += 20.0
            told.reached(CELLS[0], ended)
    early, later = out.getvalue().splitlines()
    assert early == "0/2 runs, 1%, 1 requests/s"
    assert re.fullmatch(r"0/2 runs, 3%, \d requests/s, .* left", later)


def test_the_time_left_follows_from_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()
    monkeypatch.setattr(progress, "time", clock)
    out = io.StringIO()
    with SweepProgress(Console(file=out, width=100)) as told:
        told.planned(CELLS, CELLS[1:])
        # A minute of nothing, as when kernels are compiled; then 20 requests a second.
        clock.now_s += 120.0
        for ended in range(250, 1_000, 250):
            clock.now_s += 12.5
            told.reached(CELLS[1], ended)
        clock.now_s += 12.5
        told.finished(CELLS[1])
        for ended in (250, 500):
            clock.now_s += 12.5
            told.reached(CELLS[2], ended)
    lines = out.getvalue().splitlines()
    assert lines[0] == "1 of 4 runs are there already."
    last = re.fullmatch(r"1/3 runs, 50%, (\d+) requests/s, 1 min (\d+) s left", lines[-1])
    assert last is not None, lines[-1]
    assert int(last[1]) == pytest.approx(20, abs=3)
    assert 60 + int(last[2]) == pytest.approx(1_500 / 20, abs=12)
