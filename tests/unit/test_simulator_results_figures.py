"""Figures of a run against a twin that counts one request after the other."""

import random
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator.fleets import load_fleet
from simulator.records import COLUMNS
from simulator.results.figures import REUSABLE_TOKENS, run_figures
from simulator.results.load_factor import peak_load_factor
from simulator.results.outcome import Columns, Watched
from simulator.results.parts import part_times
from tests.models import figures_naive as naive

FLEET = load_fleet("testbed-14")
REGIONS = [FLEET.region_of(worker) for worker in range(FLEET.workers)]
TIMING = FLEET.engines[0].timing
NOTHING_WATCHED = Watched(
    at_us=np.zeros(0, np.int64),
    busy_us=np.zeros((0, FLEET.workers), np.int64),
    prefill_busy_us=np.zeros(0, np.int64),
    generated=np.zeros(0, np.int64),
    wan_bytes=np.zeros(0, np.int64),
    reusable=np.zeros((0, 3), np.int64),
)


@st.composite
def requests(draw: st.DrawFn) -> list[naive.OneRequest]:
    """Of a seed, for drawing every number one by one takes long."""
    count, failing = draw(st.integers(1, 60)), draw(st.sampled_from((0.0, 0.1, 0.9)))
    stream = random.Random(draw(st.integers(0, 1 << 32)))
    claiming = draw(st.booleans())
    return [one_request(id_, failing, claiming, stream) for id_ in range(count)]


def one_request(id_: int, failing: float, claiming: bool, stream: random.Random) -> naive.OneRequest:
    arrived = stream.randrange(stream.choice((10, 20_000_000)))
    submitted = arrived + stream.randrange(3_000_000)
    first = submitted + stream.randrange(3_000_000)
    prompt = 1 + stream.randrange(30_000)
    cached = stream.randrange(prompt)
    failed = stream.random() < failing
    return naive.OneRequest(
        id=id_,
        region=stream.randrange(FLEET.regions),
        worker=-1 if failed else stream.randrange(FLEET.workers),
        arrived_us=arrived,
        submitted_us=submitted,
        first_token_us=0 if failed else first,
        finished_us=0 if failed else first + stream.randrange(3_000_000),
        prompt_tokens=prompt,
        cached_tokens=cached,
        cached_host_tokens=stream.randrange(cached + 1),
        claimed_tokens=stream.randrange(prompt + 1) if claiming else 0,
        answer_tokens=1 + stream.randrange(400),
    )


def columns_of(rows: list[naive.OneRequest]) -> Columns:
    known = {field.name for field in fields(naive.OneRequest)}
    return {
        name: np.array([getattr(row, name) if name in known else 0 for row in rows], np.int64)
        for name in COLUMNS
    }


def between(rows: list[naive.OneRequest], warm_up: int, last: int) -> NDArray[np.bool_]:
    """Which count: in order of arrival, from one place to another."""
    counts = np.zeros(len(rows), np.bool_)
    counts[[row.id for row in sorted(rows, key=lambda row: (row.arrived_us, row.id))[warm_up:last]]] = True
    return counts


@settings(deadline=None)
@given(requests(), st.data())
def test_figures_are_those_of_the_twin(rows: list[naive.OneRequest], data: st.DataObject) -> None:
    warm_up = data.draw(st.integers(0, len(rows) - 1))
    last = data.draw(st.integers(warm_up + 1, len(rows)))
    found = run_figures(FLEET, columns_of(rows), NOTHING_WATCHED, between(rows, warm_up, last))
    twin = naive.figures(rows, warm_up, last, REGIONS, FLEET.plan.wan_ms, TIMING)
    for name, expected in twin.items():
        if isinstance(name, tuple):
            value = getattr(getattr(found, name[0]), f"p{name[1]}")
            # Prefill times are rounded to whole microseconds, which halves need not be alike.
            assert value == (None if expected is None else pytest.approx(expected, abs=2e-3)), name
        else:
            value = getattr(found, name)
            assert value == (None if expected is None else pytest.approx(expected)), name


@settings(deadline=None)
@given(requests())
def test_the_parts_of_every_request_add_up_to_its_time(rows: list[naive.OneRequest]) -> None:
    columns = columns_of(rows)
    times = part_times(FLEET, columns)
    whole = times.way_us + times.queue_us + times.prefill_us
    assert (whole == columns["first_token_us"] - columns["arrived_us"]).all()
    good = [row for row in rows if row.worker >= 0]
    found = run_figures(FLEET, columns, NOTHING_WATCHED, between(rows, 0, len(rows)))
    for parts in (found.parts, found.parts_middle, found.parts_slowest, found.parts_longest):
        assert (parts is None) == (not good)
    if found.parts is not None:
        total = found.parts.way_ms + found.parts.queue_ms + found.parts.prefill_ms
        assert total == pytest.approx(found.ttft_ms.mean, abs=1e-6)
        assert total + found.parts.answer_ms == pytest.approx(found.e2e_ms.mean, abs=1e-6)
    if found.parts_longest is not None:
        longest = max(row.finished_us - row.arrived_us for row in good) / 1e3
        assert sum(asdict(found.parts_longest).values()) == pytest.approx(longest, abs=1e-6)
    if found.parts_slowest is not None:
        slowest = found.parts_slowest
        longest = max(row.first_token_us - row.arrived_us for row in good) / 1e3
        assert slowest.way_ms + slowest.queue_ms + slowest.prefill_ms == pytest.approx(longest, abs=1e-6)


def test_the_engines_of_a_mixed_fleet_are_each_taken_at_their_own_speed() -> None:
    rows = [
        naive.OneRequest(0, 0, worker, 0, 0, 9_000_000, 9_000_000, 8_000, 0, 0, 0, 1) for worker in (0, 13)
    ]
    slow = load_fleet("testbed-14").engines[0]
    fast = load_fleet("paper-64").engines[0]
    fleet = replace(FLEET, engines=(slow,) * 13 + (fast,))
    computed = part_times(fleet, columns_of(rows)).prefill_us.tolist()
    assert computed == [slow.timing.prefill_us(0, 8_000), fast.timing.prefill_us(0, 8_000)]
    assert computed[0] != computed[1]


@st.composite
def samples(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    count, workers = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    gaps = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    work = draw(
        st.lists(
            st.lists(st.integers(0, 5), min_size=workers, max_size=workers), min_size=count, max_size=count
        )
    )
    at_us = np.cumsum(gaps, dtype=np.int64).tolist()
    busy_us = np.cumsum(np.array(work, np.int64).reshape(count, workers), axis=0).tolist()
    return at_us, busy_us


@settings(deadline=None)
@given(samples(), st.integers(1, 60))
def test_the_peak_load_factor_is_that_of_the_twin(
    sampled: tuple[list[int], list[list[int]]], window_us: int
) -> None:
    at_us, busy_us = sampled
    workers = len(busy_us[0]) if busy_us else 1
    found = peak_load_factor(
        np.array(at_us, np.int64), np.array(busy_us, np.int64).reshape(-1, workers), window_us
    )
    twin = naive.peak_load_factor(at_us, busy_us, window_us)
    assert found == (None if twin is None else pytest.approx(twin))
    if found is not None:
        assert 1.0 <= found <= workers + 1e-9


def test_only_prefixes_that_another_region_alone_holds_count_as_only_elsewhere() -> None:
    rows = [naive.OneRequest(id_, 0, 0, id_, id_, 100, 200, 9_000, 0, 0, 0, 1) for id_ in range(6)]
    enough, little = REUSABLE_TOKENS, REUSABLE_TOKENS - 1
    held = [
        (0, enough, enough),  # of the warm-up: out
        (1, little, enough),  # only elsewhere
        (2, enough, little),
        (3, enough, enough),
        (4, little, little),  # nowhere: out
        (5, 0, enough),  # only elsewhere
    ]
    watched = Watched(
        at_us=NOTHING_WATCHED.at_us,
        busy_us=NOTHING_WATCHED.busy_us,
        prefill_busy_us=NOTHING_WATCHED.prefill_busy_us,
        generated=NOTHING_WATCHED.generated,
        wan_bytes=NOTHING_WATCHED.wan_bytes,
        reusable=np.array(held, np.int64),
    )
    counts = between(rows, 1, 6)
    found = run_figures(FLEET, columns_of(rows), watched, counts)
    assert found.only_elsewhere == 2 / 4
    assert run_figures(FLEET, columns_of(rows), NOTHING_WATCHED, counts).only_elsewhere is None


def test_samples_from_outside_the_measured_time_do_not_count() -> None:
    second = 1_000_000
    rows = [
        naive.OneRequest(id_, 0, 0, 20 * id_ * second, 1, 100, 200, 9_000, 0, 0, 0, 1) for id_ in range(5)
    ]
    at_us = np.array([0, 20, 40, 60, 80], np.int64) * second
    busy_us = np.zeros((5, FLEET.workers), np.int64)
    busy_us[:, 0] = [0, 100, 104, 108, 900]
    watched = Watched(
        at_us, busy_us, busy_us[:, 0] // 2, 100 * busy_us[:, 0], 10 * busy_us[:, 0], NOTHING_WATCHED.reusable
    )
    found = run_figures(FLEET, columns_of(rows), watched, between(rows, 1, 4))
    assert found.busy == pytest.approx(8 / (40 * second) / FLEET.workers)
    assert found.prefill_busy == pytest.approx(4 / (40 * second) / FLEET.workers)
    assert found.output_tokens_per_s == pytest.approx(800 / 40)
    assert found.wan_bytes == 80
    assert found.peak_load_factor == pytest.approx(FLEET.workers)


def test_what_was_looked_at_once_tells_no_rate_and_no_load_factor() -> None:
    rows = [naive.OneRequest(0, 0, 0, 10, 1, 100, 200, 9_000, 0, 0, 0, 1)]
    found = run_figures(FLEET, columns_of(rows), NOTHING_WATCHED, between(rows, 0, 1))
    assert found.output_tokens_per_s is None
    assert found.peak_load_factor is None
