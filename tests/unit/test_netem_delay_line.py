"""The laws of a delay line: never early, in order unless told, as slow as its rate, bounded."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.wan import Link
from lab.netem import delay_line
from lab.netem.delay_line import DelayLine, Fate
from tests.models.delay_line_naive import Sent, arrivals_ns

MS = 1_000_000

gaps_ns = st.lists(st.integers(0, 30 * MS), min_size=1, max_size=60)
seeds = st.integers(0, 1 << 32)


def sent(gaps: list[int], drawn: random.Random) -> list[Sent]:
    at_ns, packets = 0, []
    for gap in gaps:
        at_ns += gap
        packets.append(Sent(at_ns, drawn.randint(20, 65_535)))
    return packets


def arrivals(line: DelayLine, packets: list[Sent]) -> dict[int, int]:
    """Runs a virtual clock from event to event; returns when each number arrived."""
    arrived: dict[int, int] = {}
    held: list[int] = []

    def release_until(now_ns: int) -> None:
        while (due := line.next_due_ns()) is not None and due <= now_ns:
            assert line.release(due - 1) is None, "early"
            last = line.release(due)
            assert last is not None
            while held and held[0] <= last:
                arrived[held.pop(0)] = due

    for number, packet in enumerate(packets):
        release_until(packet.at_ns)
        match line.admit(packet.at_ns, number, packet.length):
            case Fate.HELD:
                held.append(number)
            case Fate.PASSES_AT_ONCE:
                arrived[number] = packet.at_ns
    release_until(1 << 62)
    assert not held
    assert not len(line)
    return arrived


@given(gaps_ns, st.floats(0.0, 500.0), st.none() | st.floats(200.0, 10_000.0), seeds)
def test_without_chance_it_is_its_twin(
    gaps: list[int], one_way_ms: float, rate: float | None, seed: int
) -> None:
    drawn = random.Random(seed)
    link = Link(one_way_ms, rate=rate)
    packets = sent(gaps, drawn)
    wanted = dict(enumerate(arrivals_ns(link, packets)))
    assert arrivals(DelayLine(link, drawn), packets) == wanted


@given(
    gaps_ns,
    st.floats(1.0, 500.0),
    st.floats(0.0, 100.0),
    st.floats(0.0, 1.0),
    seeds,
)
def test_jitter_and_loss_keep_the_order_and_none_is_in_two_places(
    gaps: list[int], one_way_ms: float, jitter_ms: float, loss: float, seed: int
) -> None:
    drawn = random.Random(seed)
    line = DelayLine(Link(one_way_ms, jitter_ms=jitter_ms, loss=loss), drawn)
    packets = sent(gaps, drawn)
    arrived = arrivals(line, packets)
    assert len(arrived) + line.shaped_drops == line.packets == len(packets)
    in_order = [arrived[number] for number in sorted(arrived)]
    assert in_order == sorted(in_order)
    assert all(at_ns >= packets[number].at_ns for number, at_ns in arrived.items())
    if jitter_ms == 0.0:
        assert all(at_ns >= packets[number].at_ns + int(one_way_ms * MS) for number, at_ns in arrived.items())


@given(gaps_ns, seeds)
def test_what_is_reordered_travels_in_no_time(gaps: list[int], seed: int) -> None:
    drawn = random.Random(seed)
    packets = sent(gaps, drawn)
    arrived = arrivals(DelayLine(Link(50.0, reorder=1.0), drawn), packets)
    assert arrived == {number: packet.at_ns for number, packet in enumerate(packets)}


def test_a_share_of_the_packets_is_lost_or_overtakes() -> None:
    line = DelayLine(Link(50.0, loss=0.2, reorder=0.1), random.Random(1))
    fates = [line.admit(0, number, 100) for number in range(10_000)]
    assert abs(fates.count(Fate.DROPPED) - 2_000) < 200
    assert abs(fates.count(Fate.PASSES_AT_ONCE) - 800) < 130


def test_what_waits_for_a_slow_link_is_bounded() -> None:
    line = DelayLine(Link(10.0, rate=1.0), random.Random(1))
    fates = [line.admit(0, number, 1_250) for number in range(100)]  # 10 ms each
    assert fates == [Fate.HELD] * 21 + [Fate.DROPPED] * 79
    assert line.shaped_drops == 79


def test_what_is_on_the_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_line, "MAX_HELD", 3)
    line = DelayLine(Link(10.0), random.Random(1))
    assert [line.admit(0, number, 100) for number in range(4)] == [Fate.HELD] * 3 + [Fate.DROPPED]


def test_a_new_link_holds_for_the_next_packet_and_overtakes_nothing() -> None:
    line = DelayLine(Link(100.0), random.Random(1))
    line.admit(0, 0, 100)
    line.link = Link(10.0)
    line.admit(1 * MS, 1, 100)
    assert line.release(99 * MS) is None
    assert line.release(100 * MS) == 1
    line.admit(200 * MS, 2, 100)
    assert line.next_due_ns() == 210 * MS
