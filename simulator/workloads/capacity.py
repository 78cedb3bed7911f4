"""lambda_0, the no-reuse capacity of a fleet: what a load of 1.0 means (paper 3.5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvcompass.engine_model import EngineConfig, Scheduling
from simulator.fleet import Fleet
from simulator.workloads.workload import Workload

SAMPLE: Final = 20_000
"""Requests that are looked at: with Mixed's spread, lambda_0 is known to about 2 %."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of a fleet on a workload in which nothing is ever reused."""

    rate_per_s: float
    """lambda_0."""
    prefill_per_s: float
    """Requests a second whose prefills fill all workers, if answers took nothing."""
    decode_per_s: float
    """Requests a second whose answers fill all workers, if prompts took nothing."""
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
        """What takes more of the workers."""
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

    Let n be a prompt's tokens, m its answer's, t(n) the time of a prefill of which nothing is cached, and B
    the sequences that can run at once. A request runs for m decode steps, so whoever looks at a batch meets
    long answers more often, in proportion to m: a sequence there holds E[m (n + m)] / E[m] tokens in the
    mean, of which E[m (n + m/2)] / E[m] are its context so far, and B = min(max_running, cache / held).

    Where prefills take turns beside the batch, a worker prefills 1 / E[t(n)] requests a second, and it
    decodes B / (E[m] * step) with the step of a full batch; its capacity is the smaller of both.

    Where chunks of prompts share iterations with the batch, an iteration computes c tokens of prompts and b
    of answers on average, in the workload's own ratio b / c = E[m] / E[n], and as many as fit: c <=
    chunk_tokens and b <= B. A prompt comes when a place is free, so the c are not spread evenly: they come in
    chunks of one prompt or chunk_tokens, in the share f of the iterations, and the others only decode. With T
    the mean of both kinds' times the capacity is c / (E[n] * T).

    Workers are summed; with decoders (PD) prefills and decodes are summed over different engines, and the
    smaller sum is the fleet's.
    """
    load = _Load.of(sample)
    decoding = [decoder.config for decoder in fleet.decoders]
    rates = {config: _rates(config, load) for config in {*fleet.engines, *decoding}}
    workers = [rates[config] for config in fleet.engines]
    decoders = [rates[config] for config in decoding] or workers
    prefill = sum(one.prefill for one in workers)
    decode = sum(one.decode for one in decoders)
    times = [fleet.engines[0].timing.prefill_us(0, n) / 1e6 for n in sample.prompts]
    mean = sum(times) / len(times)
    return Capacity(
        rate_per_s=min(prefill, decode) if fleet.decoders else sum(one.both for one in workers),
        prefill_per_s=prefill,
        decode_per_s=decode,
        prefill_ms=1e3 * mean,
        prefill_cv2=sum((time - mean) ** 2 for time in times) / len(times) / mean**2,
        prompt_tokens=load.prompt,
        answer_tokens=load.answer,
    )


@dataclass(frozen=True, slots=True)
class _Load:
    """Means of a sample."""

    prompt: float
    answer: float
    squared_prompt: float
    held: float
    """Tokens that a decoding sequence has room for, in the mean over a batch."""
    context: float
    """Tokens that its next one attends to, likewise."""

    @classmethod
    def of(cls, sample: Sample) -> "_Load":
        count = len(sample.prompts)
        answers = sum(sample.answers)
        pairs = list(zip(sample.prompts, sample.answers, strict=True))
        return cls(
            prompt=sum(sample.prompts) / count,
            answer=answers / count,
            squared_prompt=sum(n * n for n in sample.prompts) / count,
            held=sum(m * (n + m) for n, m in pairs) / answers,
            context=sum(m * (n + m / 2) for n, m in pairs) / answers,
        )


@dataclass(frozen=True, slots=True)
class _Rates:
    """Requests a second of one engine."""

    prefill: float
    decode: float
    both: float


def _rates(config: EngineConfig, load: _Load) -> _Rates:
    timing, prompt, answer = config.timing, load.prompt, load.answer
    prefill_ms = (
        timing.prefill_ms_per_token * prompt + timing.prefill_ms_per_token_squared * load.squared_prompt
    )
    batch = max(1.0, min(config.max_running, config.cache_tokens / load.held))
    step_ms = max(timing.decode_ms, timing.prefill_ms_per_token * batch)
    step_ms += timing.decode_ms_per_context_token * batch * load.context
    prefill, decode = 1e3 / prefill_ms, 1e3 * batch / (answer * step_ms)
    if config.scheduling is Scheduling.TURNS:
        return _Rates(prefill, decode, min(prefill, decode))
    chunk = min(config.chunk_tokens, batch * prompt / answer)
    answers = chunk * answer / prompt
    burst = min(config.chunk_tokens, max(prompt, chunk))
    share = chunk / burst
    iteration_ms = share * max(timing.decode_ms, timing.prefill_ms_per_token * (burst + answers))
    iteration_ms += (1 - share) * max(timing.decode_ms, timing.prefill_ms_per_token * answers)
    iteration_ms += timing.prefill_ms_per_token_squared * chunk * load.squared_prompt / prompt
    iteration_ms += timing.decode_ms_per_context_token * answers * load.context
    return _Rates(prefill, decode, 1e3 * chunk / (prompt * iteration_ms))
