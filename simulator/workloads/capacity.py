"""lambda_0, the no-reuse capacity of a fleet: what a load of 1.0 means (paper 3.5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvcompass.engine_model import EngineConfig
from simulator.fleet import Fleet
from simulator.workloads.workload import Workload

SAMPLE: Final = 20_000
"""Requests that are looked at: with Mixed's spread, lambda_0 is known to about 2 %."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of a fleet on a workload in which nothing is ever reused."""

    rate_per_s: float
    """lambda_0: the smaller of the two below, summed over the workers."""
    prefill_per_s: float
    """Requests a second whose prefills fill all workers."""
    decode_per_s: float
    """Requests a second whose answers fill all decoding places."""
    prefill_ms: float
    """Mean prefill of a request on the first worker."""
    prefill_cv2: float
    """Squared coefficient of variation of that (5.4 in the paper's Fig. 9)."""
    prompt_tokens: float
    """Mean."""
    answer_tokens: float
    """Mean."""

    @property
    def bound(self) -> Literal["prefill", "decode"]:
        """What fills up first."""
        return "prefill" if self.prefill_per_s <= self.decode_per_s else "decode"


@dataclass(frozen=True, slots=True)
class Sample:
    """Lengths of requests, all turns of each conversation."""

    prompts: Sequence[int]
    answers: Sequence[int]


def sample_lengths(workload: Workload, most: int = SAMPLE) -> Sample:
    """Take the first conversations of a workload, whole. It is used up by that: make another one for a
    run."""
    prompts: list[int] = []
    answers: list[int] = []
    while len(prompts) < most and (turn := workload.opening(len(prompts), 0)) is not None:
        while True:
            prompts.append(len(turn.request.prompt))
            answers.append(len(turn.request.answer))
            if turn.rest is None:
                break
            turn = turn.rest.turn(len(prompts), 0)
    return Sample(prompts, answers)


def no_reuse_capacity(fleet: Fleet, sample: Sample) -> Capacity:
    """Return lambda_0.

    A worker prefills one prompt at a time, so it takes 1 / E[t(n)] of them a second, t the time of a prefill
    of which nothing is cached. Meanwhile what is prefilled decodes in a batch: B places, as many as the
    engine runs at once and its cache has room for, B = min(max_running, cache / E[n + m]). A request holds
    one for its m answer tokens, each a step of the full batch: B / (E[m] * step(B * E[n + m / 2])) a second.
    A worker's capacity is the smaller of both, the fleet's their sum. With decoders (PD) prefills and decodes
    are summed over different engines, and the smaller sum is the fleet's."""
    decoding = [decoder.config for decoder in fleet.decoders]
    rates = {config: _rates(config, sample) for config in {*fleet.engines, *decoding}}
    workers = [rates[config] for config in fleet.engines]
    decoders = [rates[config] for config in decoding] or workers
    prefill = sum(rate for rate, _ in workers)
    decode = sum(rate for _, rate in decoders)
    times = [_prefill_s(fleet.engines[0], n) for n in sample.prompts]
    mean = sum(times) / len(times)
    return Capacity(
        rate_per_s=min(prefill, decode) if fleet.decoders else sum(min(both) for both in workers),
        prefill_per_s=prefill,
        decode_per_s=decode,
        prefill_ms=1e3 * mean,
        prefill_cv2=sum((time - mean) ** 2 for time in times) / len(times) / mean**2,
        prompt_tokens=sum(sample.prompts) / len(sample.prompts),
        answer_tokens=sum(sample.answers) / len(sample.answers),
    )


def _prefill_s(config: EngineConfig, tokens: int) -> float:
    return config.timing.prefill_us(0, tokens) / 1e6


def _rates(config: EngineConfig, sample: Sample) -> tuple[float, float]:
    """Return the requests a second that one engine prefills, and that it decodes."""
    count = len(sample.prompts)
    prompt, answer = sum(sample.prompts) / count, sum(sample.answers) / count
    prefill_s = sum(_prefill_s(config, n) for n in sample.prompts) / count
    batch = max(1.0, min(config.max_running, config.cache_tokens / (prompt + answer)))
    step_s = config.timing.decode_step_us(round(batch * (prompt + answer / 2))) / 1e6
    return 1 / prefill_s, batch / (answer * step_s)
