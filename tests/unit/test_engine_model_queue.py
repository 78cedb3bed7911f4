"""At the paper's linear rates an engine is a queue that theory knows: M/G/1."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kvcompass.engine_model import Engine, EngineConfig, EngineRequest, EngineTiming

BETA_MS = 0.073
"""The A100's mean prefill rate (calibration of docs/decisions/0601)."""
TIMING = EngineTiming.linear(BETA_MS)
CONFIG = EngineConfig(
    page_size=4_096,
    cache_tokens=100_000_000,
    max_running=1_000_000,
    max_queued=1_000_000,
    timing=TIMING,
    token_progress=False,
)
ANSWER = np.arange(3, dtype=np.int32)


def waits_us(lengths: NDArray[np.int64], arrivals_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """How long each prompt waits for its prefill to begin."""
    engine = Engine(CONFIG)
    tokens = np.zeros(int(lengths.max()), dtype=np.int32)
    first_tokens = np.zeros(len(lengths), dtype=np.int64)
    for number, (length, at_us) in enumerate(zip(lengths.tolist(), arrivals_us.tolist(), strict=True)):
        engine.submit(EngineRequest(str(number), tokens[:length], ANSWER), at_us)
    engine.advance(10**15)
    for step in engine.take_progress():
        if step.generated == 1:
            first_tokens[int(step.request_id)] = step.at_us
    service = np.array([TIMING.prefill_us(0, length) for length in lengths.tolist()])
    return first_tokens - arrivals_us - service


@pytest.mark.parametrize("utilization", [0.3, 0.6])
def test_the_mean_wait_of_random_prompts_is_pollaczek_khinchines(utilization: float) -> None:
    """lambda E[S^2] / (2 (1 - rho)), for many short prompts and some long ones, answers beside them."""
    rng = np.random.default_rng(1)
    count = 40_000
    lengths = rng.choice(np.array([40, 200, 900, 4_000]), count, p=(0.3, 0.4, 0.25, 0.05))
    service = 1e3 * BETA_MS * lengths
    gaps = rng.exponential(service.mean() / utilization, count)
    arrivals = np.cumsum(gaps).astype(np.int64)
    rate, rho = 1 / gaps.mean(), service.mean() / gaps.mean()
    assert np.var(service) / service.mean() ** 2 > 2, "far from exponential, so the second moment matters"
    expected = rate * np.mean(service**2) / (2 * (1 - rho))
    assert waits_us(lengths, arrivals).mean() == pytest.approx(expected, rel=0.05)


def test_equal_prompts_at_equal_distances_never_wait() -> None:
    lengths = np.full(100, 1_000)
    arrivals = np.arange(100) * TIMING.prefill_us(0, 1_000)
    assert not waits_us(lengths, arrivals).any()


def test_reuse_is_paid_at_gamma_and_the_rest_at_beta() -> None:
    config = EngineConfig(page_size=4, cache_tokens=160, host_cache_tokens=400, timing=TIMING)
    engine = Engine(config)
    for number, token in enumerate((1, 2, 1)):
        prompt = np.full(100 + 40 * (token == 2), token, dtype=np.int32)
        engine.submit(EngineRequest(str(number), prompt, ANSWER[:0]), number * 10**6)
    engine.advance(10**9)
    last = engine.take_progress()[-1]
    # 160 tokens of VRAM hold 140 of the second and 20 of the first, whose other 76 whole pages DRAM has.
    assert (last.cached_tokens, last.cached_host_tokens) == (96, 76)
    assert last.at_us == 2 * 10**6 + round(1e3 * BETA_MS * 4) + round(1e3 * 0.00524 * 76)
