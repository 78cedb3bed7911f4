"""Order of things, and what links do to messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.wan import Link
from simulator.clock import Clock, Priority
from simulator.network import Network


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(Priority)), max_size=60))
def test_things_are_done_by_time_then_priority_then_order_of_asking(
    asked: list[tuple[int, Priority]],
) -> None:
    clock = Clock()
    done: list[tuple[int, Priority, int]] = []
    for number, (time_us, priority) in enumerate(asked):
        clock.at(time_us, priority, lambda *what: done.append((clock.now_us, *what)), priority, number)
    clock.run()
    assert done == sorted((time_us, priority, i) for i, (time_us, priority) in enumerate(asked))


def _arrivals(link: Link, *, count: int = 400, reliably: bool = False) -> list[tuple[int, int]]:
    """(number, travelled us) of messages sent every millisecond, in order of arrival."""
    clock = Clock()
    network = Network(clock, 2, lambda a, b: link if a != b else Link(0.5), seed=3)
    arrived: list[tuple[int, int]] = []

    def send(number: int) -> None:
        sent_us = clock.now_us
        hand_over = network.send_reliably if reliably else network.send
        hand_over(0, 1, 10, lambda: arrived.append((number, clock.now_us - sent_us)))

    for number in range(count):
        clock.at(1_000 * number, Priority.TIMER, send, number)
    clock.run()
    assert network.bytes_sent[0][1] == 10 * count
    return arrived


def test_a_steady_link_delays_and_does_nothing_else() -> None:
    assert _arrivals(Link(80.0)) == [(i, 80_000) for i in range(400)]


def test_jitter_keeps_the_order_and_reordering_breaks_it() -> None:
    jittered = _arrivals(Link(80.0, jitter_ms=10.0))
    assert [number for number, _ in jittered] == list(range(400))
    assert len({travelled for _, travelled in jittered}) > 100
    reordered = _arrivals(Link(80.0, reorder=0.2))
    overtaking = [travelled for _, travelled in reordered if travelled == 0]
    assert 40 < len(overtaking) < 120
    assert sorted(number for number, _ in reordered) == list(range(400))


def test_what_is_lost_is_gone_or_late() -> None:
    lossy = Link(80.0, loss=0.3, duplicate=0.1)
    numbers = [number for number, _ in _arrivals(lossy)]
    assert 200 < len(set(numbers)) < 360
    assert len(numbers) > len(set(numbers))
    late = _arrivals(Link(80.0, loss=0.3), reliably=True)
    assert [number for number, _ in late] == list(range(400))
    assert max(travelled for _, travelled in late) >= 80_000 + 200_000 + 160_000


def test_a_link_that_reorders_keeps_the_order_of_what_is_sent_reliably() -> None:
    assert _arrivals(Link(80.0, reorder=0.2), reliably=True) == [(i, 80_000) for i in range(400)]


@pytest.mark.parametrize("reliably", [False, True])
def test_what_is_under_way_when_a_link_gets_faster_is_not_overtaken(reliably: bool) -> None:
    clock = Clock()
    network = Network(clock, 2, lambda a, b: Link(80.0), seed=3)
    arrived: list[tuple[str, int]] = []
    hand_over = network.send_reliably if reliably else network.send
    network.send_reliably(0, 1, 10, lambda: arrived.append(("slow", clock.now_us)))
    network.set_link(0, 1, Link(5.0))
    hand_over(0, 1, 10, lambda: arrived.append(("fast", clock.now_us)))
    clock.run()
    assert arrived == [("slow", 80_000), ("fast", 80_000)]


def test_nothing_passes_between_parted_regions() -> None:
    assert _arrivals(Link(80.0, partition=True)) == []
    assert _arrivals(Link(80.0, partition=True), reliably=True) == []
