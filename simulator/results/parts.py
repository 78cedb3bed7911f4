"""What a request's time is made of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model import EngineTiming
from simulator.fleet import Fleet
from simulator.results.outcome import Columns


@dataclass(frozen=True, slots=True)
class Parts:
    """Mean milliseconds a request, over some requests. The first three add up to the time to the first
    token, all of them to the time to the last."""

    way_ms: float
    """To the engine, with every question asked and every try on the way, and back on an idle link."""
    queue_ms: float
    """What is left: waiting at the engine, and being slowed down by what else runs there."""
    prefill_ms: float
    """Computing what was not reused and loading back what lay in DRAM, on an engine of its own."""
    answer_ms: float
    """From the first token to the last."""


@dataclass(frozen=True, slots=True, eq=False)
class PartTimes:
    """The same for each request, int64[n] in microseconds."""

    way_us: NDArray[np.int64]
    queue_us: NDArray[np.int64]
    prefill_us: NDArray[np.int64]
    answer_us: NDArray[np.int64]

    def mean(self, rows: NDArray[np.int64]) -> Parts | None:
        """Over the given requests, by their ids; None where there are none."""
        if not len(rows):
            return None
        way, queue, prefill, answer = (
            float(each[rows].mean()) / 1e3
            for each in (self.way_us, self.queue_us, self.prefill_us, self.answer_us)
        )
        return Parts(way, queue, prefill, answer)


def part_times(fleet: Fleet, columns: Columns) -> PartTimes:
    """Take every request's time apart. Of failed requests the parts mean nothing."""
    worker = columns["worker"]
    region_of = np.array([fleet.region_of(each) for each in range(fleet.workers)])
    one_way_us = np.rint(1e3 * np.array(fleet.plan.wan_ms)).astype(np.int64)
    back_us = one_way_us[region_of[worker], columns["region"]]
    way_us = columns["submitted_us"] - columns["arrived_us"] + back_us
    prefill_us = np.zeros(len(worker), np.int64)
    timings = [engine.timing for engine in fleet.engines]
    for timing in set(timings):
        served = np.array([each == timing for each in timings])[worker]
        prefill_us[served] = _prefill_us(timing, {name: each[served] for name, each in columns.items()})
    queue_us = columns["first_token_us"] - columns["arrived_us"] - way_us - prefill_us
    return PartTimes(way_us, queue_us, prefill_us, columns["finished_us"] - columns["first_token_us"])


def _prefill_us(timing: EngineTiming, columns: Columns) -> NDArray[np.int64]:
    cached, end = columns["cached_tokens"], columns["prompt_tokens"]
    computed = timing.prefill_ms_per_token * (end - cached)
    computed = computed + timing.prefill_ms_per_token_squared * (end * end - cached * cached)
    reloaded = timing.reload_ms_per_token * columns["cached_host_tokens"]
    return np.rint(1e3 * (computed + reloaded)).astype(np.int64)
