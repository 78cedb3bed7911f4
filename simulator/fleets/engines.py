"""Behind a worker: sizes and speeds of the GPUs of the paper, by measurements or by its linear rates."""

from dataclasses import dataclass, replace
from typing import Final

from kvcompass.engine_model import BlockNames, EngineConfig, EngineTiming
from kvcompass.plan.model import Worker
from simulator.fleets.options import FleetOptions

MAX_QUEUED: Final = 1 << 20
"""Requests that wait at one engine: a fleet that is overloaded shows waits, as in the paper, not refusals."""

MAX_RUNNING: Final = 256
"""Sequences that decode at once, where the cache has room for them. Decode steps were measured up to 64;
above, the same line is taken on."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A worker's hardware, serving Llama-3.1-8B in BF16: 131,072 bytes of KV a token."""

    prefill_ms_per_token: float
    """beta, which the plan tells the score; a typical prompt's mean."""
    measured: EngineTiming
    decode_ms: float
    """One decode step of the linear mode."""
    reload_ms_per_token: float
    """gamma: 131,072 bytes at 25 GB/s of PCIe 4.0."""
    cache_tokens: int
    host_cache_tokens: int

    def of(self, worker: Worker) -> "Gpu":
        """Return one of this kind at a worker's rates: its prefill is faster or slower in both its parts."""
        prefill_ms_per_token, reload_ms_per_token = worker.prefill_ms_per_token, worker.reload_ms_per_token
        ratio = prefill_ms_per_token / self.prefill_ms_per_token
        measured = replace(
            self.measured,
            prefill_ms_per_token=ratio * self.measured.prefill_ms_per_token,
            prefill_ms_per_token_squared=ratio * self.measured.prefill_ms_per_token_squared,
            decode_ms_per_context_token=worker.context_ms_per_token,
            reload_ms_per_token=reload_ms_per_token,
        )
        return replace(
            self,
            prefill_ms_per_token=prefill_ms_per_token,
            reload_ms_per_token=reload_ms_per_token,
            measured=measured,
        )

    def config(self, block_size: int, options: FleetOptions) -> EngineConfig:
        """Return its engine's configuration; of the options those apply that are about engines."""
        timing = self.measured
        if options.timing == "linear":
            timing = replace(
                EngineTiming.linear(self.prefill_ms_per_token, self.reload_ms_per_token),
                decode_ms=self.decode_ms,
                decode_ms_per_context_token=0.0,
            )
        return EngineConfig(
            page_size=block_size,
            cache_tokens=self.cache_tokens,
            host_cache_tokens=self.host_cache_tokens,
            max_running=MAX_RUNNING,
            max_queued=MAX_QUEUED,
            eviction=options.eviction,
            timing=timing,
            scheduling=options.scheduled,
            block_names=BlockNames.NUMBERED,
            token_progress=False,
        )


A100: Final = Gpu(
    prefill_ms_per_token=0.073,
    measured=EngineTiming(),
    decode_ms=11.0,
    reload_ms_per_token=0.00524,
    cache_tokens=244_140,
    host_cache_tokens=976_562,
)
"""The paper's 5.3: 32 GB of VRAM and 128 GB of DRAM for KV (decimal gigabytes). Prefill and decode as
measured on an A100 with an 8B model (docs/decisions/0601); 0.073 ms is that prefill's mean at 4K tokens."""

RTX_5090: Final = Gpu(
    prefill_ms_per_token=0.085,
    measured=EngineTiming(prefill_ms_per_token=0.078, prefill_ms_per_token_squared=1.6e-6, decode_ms=10.2),
    decode_ms=10.2,
    reload_ms_per_token=0.00524,
    cache_tokens=83_000,
    host_cache_tokens=976_562,
)
"""The paper's testbeds (5.2): 0.085 ms a token. Its 32 GB hold 16.1 GB of weights; at SGLang's usual share of
0.88 about 10.9 GB are left for KV. The quadratic part is the A100's in the ratio of the rates, the linear
part what gives 0.085 at 4K tokens; 10.2 ms a decode step as measured on one. DRAM as in 5.3 (not told for
these)."""
