"""Which requests of a run count, and when no more are given out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.experiments.cell import Cell, Setting
from simulator.experiments.run import run_cell
from simulator.experiments.window import MeasuredSource, Window
from simulator.request import Request

TOKENS = np.zeros(1, np.int32)


class Listed:
    """Requests at given instants, whoever waits for whom. A `RequestSource`."""

    label = "listed"

    def __init__(self, instants: list[int]) -> None:
        self._instants = instants
        self.given = 0

    def next(self) -> Request | None:
        if self.given == len(self._instants):
            return None
        self.given += 1
        return Request(self.given - 1, self._instants[self.given - 1], 0, TOKENS, TOKENS, 0, "", "")

    def ended(self, request: Request, now_us: int) -> Request | None:
        return None


def play(source: MeasuredSource, lasts_us: Callable[[int], int]) -> int:
    """Give out everything as a world does: the next when one arrives, ends as they come. How many came."""
    running: list[tuple[int, Request]] = []
    came, request = 0, source.next()
    while request is not None:
        for end_us, done in sorted(running, key=lambda each: each[0]):
            if end_us <= request.arrives_us:
                source.ended(done, end_us)
                running.remove((end_us, done))
        came += 1
        running.append((request.arrives_us + lasts_us(request.id), request))
        request = source.next()
    return came


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=80),
    st.builds(Window, st.integers(0, 20), st.integers(0, 20), st.integers(0, 300), st.integers(0, 300)),
    st.integers(0, 200),
)
def test_what_counts_follows_from_the_arrivals_alone(gaps: list[int], window: Window, lasts_us: int) -> None:
    instants = np.cumsum(gaps).tolist()
    source = MeasuredSource(Listed(instants), window)
    came = play(source, lambda _id: lasts_us)
    first = next(
        (i for i, at in enumerate(instants) if i >= window.warm_up and at >= window.warm_up_us), len(instants)
    )
    last = next(
        (
            i
            for i, at in enumerate(instants[first:], first)
            if i - first >= window.requests and at - instants[first] >= window.window_us
        ),
        len(instants),
    )
    assert source.counts(came).nonzero()[0].tolist() == list(range(first, last))


def test_others_arrive_until_the_last_that_counts_has_ended() -> None:
    source = MeasuredSource(Listed(list(range(0, 10_000, 10))), Window(warm_up=2, requests=10))
    came = play(source, lambda id_: 75 if id_ == 11 else 5)
    # The 12th arrives at 110 and ends at 185: the one at 190 was on its way.
    assert came == 20
    assert source.counts(came).nonzero()[0].tolist() == list(range(2, 12))


def test_a_request_that_never_ends_does_not_go_on_for_ever() -> None:
    source = MeasuredSource(Listed(list(range(0, 10_000, 10))), Window(warm_up=2, requests=10))
    came = play(source, lambda id_: 1_000_000 if id_ == 11 else 5)
    assert came == pytest.approx(2 * 12, abs=1)


@pytest.mark.parametrize("arrivals", ["poisson", "closed"])
def test_a_run_lasts_as_long_as_it_is_told(arrivals: str) -> None:
    setting = Setting(
        fleet="testbed-14", requests=10, warm_up=5, warm_up_s=4.0, window_s=6.0, arrivals="poisson", users=20
    )
    if arrivals == "closed":
        setting = replace(setting, arrivals="closed")
    figures = run_cell(Cell(setting, "random", 20.0, None, 1)).figures
    assert figures.seconds == pytest.approx(6.0, abs=2.0)
    assert figures.requests > 10
    assert figures.output_tokens_per_s is not None
    assert figures.output_tokens_per_s > 0


def test_the_same_requests_count_under_every_policy() -> None:
    setting = Setting(fleet="testbed-14", requests=40, warm_up=10, window_s=2.0)
    found = [run_cell(Cell(setting, policy, 60.0, None, 1)).figures for policy in ("random", "clairvoyant")]
    assert len({(each.requests, each.seconds) for each in found}) == 1
    assert len({each.reused_tokens + each.recomputed_tokens for each in found}) == 1
