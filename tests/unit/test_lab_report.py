"""Reports: hand-computed figures from records, the load factor against a naive count, settings as TOML."""

import dataclasses
import random
import socket
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.load_factor import BusySample, peak_load_factor
from lab.ports import LoopbackPorts, NoFreePortError
from lab.record import Record
from lab.report import error_counts, policy_report
from lab.toml import dump_toml
from tests.models.ports import free_ports

BASE = Record(request_id="r", region="us", kind="document", family="f", sent_ms=0.0, late_ms=0.0)


def test_a_report_by_hand() -> None:
    records = [
        dataclasses.replace(BASE, ttft_ms=10.0, e2e_ms=100.0, prompt_tokens=50, cached_tokens=20),
        dataclasses.replace(BASE, ttft_ms=30.0, e2e_ms=300.0, prompt_tokens=70, cached_tokens=64),
        dataclasses.replace(BASE, ttft_ms=50.0, error="cut"),
        dataclasses.replace(BASE, error="refused"),
    ]
    report = policy_report(records, cross_region_hits=3, wrong_claims=1, peak_load_factor=1.23456)
    assert (report.ttft_ms.p50, report.ttft_ms.p95) == (30.0, 48.0)
    assert (report.e2e_ms.p50, report.e2e_ms.p95) == (200.0, 290.0)
    assert (report.reused_tokens, report.recomputed_tokens) == (84, 36)
    assert (report.cross_region_hits, report.wrong_claims, report.errors) == (3, 1, 2)
    assert report.peak_load_factor == 1.235
    assert error_counts([*records, records[2]]) == {"cut": 2, "refused": 1}


def test_a_report_of_nothing_has_zeros() -> None:
    report = policy_report([], cross_region_hits=0, wrong_claims=0, peak_load_factor=0.0)
    assert report.ttft_ms.p95 == 0.0 and report.errors == 0


def test_load_factor_by_hand() -> None:
    # One worker does all the work for 30 s, then the other catches up.
    samples = [
        BusySample(1e3 * second, {"a": 100.0 * min(second, 30), "b": 100.0 * max(0, second - 30)})
        for second in range(61)
    ]
    assert peak_load_factor(samples) == 2.0
    assert peak_load_factor(samples, window_ms=60_000.0) == 1.0


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9), st.integers(0, 9)), max_size=20),
    st.integers(1, 60),
)
def test_load_factor_equals_a_naive_count(steps: list[tuple[int, int, int]], window: int) -> None:
    samples = [BusySample(0.0, {"a": 0.0, "b": 0.0})]
    for pause, a, b in steps:
        last = samples[-1]
        busy = {"a": last.busy_ms["a"] + a, "b": last.busy_ms["b"] + b}
        samples.append(BusySample(last.at_ms + pause, busy))
    expected = 0.0
    whole = samples[-1].at_ms
    for end, late in enumerate(samples):
        long_enough = [early for early in samples[:end] if late.at_ms - early.at_ms >= min(window, whole)]
        if long_enough:
            early = long_enough[-1]
            done = [late.busy_ms[worker] - early.busy_ms[worker] for worker in ("a", "b")]
            expected = max(expected, 2.0 * max(done) / sum(done) if sum(done) else 0.0)
    assert peak_load_factor(samples, float(window)) == pytest.approx(expected)


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc-.:1", min_size=1), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc_127.:0", min_size=1), VALUES, max_size=4))
def test_settings_survive_toml(values: dict[str, object]) -> None:
    assert tomllib.loads(dump_toml(values)) == values  # type: ignore[arg-type]


def test_ports_are_distinct_free_and_of_the_range_that_is_theirs() -> None:
    first = free_ports(50)
    ports = LoopbackPorts(random.Random(1), range(first, first + 50))
    addresses = [ports.address() for _ in range(40)]
    assert len(set(addresses)) == 40
    for address in addresses:
        host, _, port = address.rpartition(":")
        assert first <= int(port) < first + 50
        with socket.socket() as listener:
            listener.bind((host, int(port)))


def test_a_range_that_has_no_more_ports_is_an_error() -> None:
    first = free_ports(1)
    ports = LoopbackPorts(random.Random(1), range(first, first + 1))
    assert ports.address() == f"127.0.0.1:{first}"
    with pytest.raises(NoFreePortError, match=f"between {first} and {first + 1}"):
        ports.address()
