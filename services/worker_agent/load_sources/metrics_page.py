"""`/metrics`: SGLang's names with `--enable-metrics`, and vLLM's, which has nothing else."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from kvcompass.roles.queue_estimate import EngineLoad
from services.worker_agent.engine_client import EngineClient, MalformedError, NotThereError
from services.worker_agent.load_sources.exposition import Exposition, Sample
from services.worker_agent.load_sources.metrics_route import MetricsRoute
from services.worker_agent.load_sources.source import SourceKind, of_rank, rank_of, total

_REQUESTS_MOST: Final = 1 << 20
_AMOUNT_MOST: Final = 1 << 48

_SGLANG: Final = {
    "sglang:num_running_reqs": _REQUESTS_MOST,
    "sglang:num_queue_reqs": _REQUESTS_MOST,
    "sglang:num_used_tokens": _AMOUNT_MOST,
    "sglang:max_total_num_tokens": _AMOUNT_MOST,
    "sglang:num_requests_total": _AMOUNT_MOST,
    "sglang:prompt_tokens_total": _AMOUNT_MOST,
    "sglang:cached_tokens_total": _AMOUNT_MOST,
}
_VLLM: Final = {
    "vllm:num_requests_running": _REQUESTS_MOST,
    "vllm:num_requests_waiting": _REQUESTS_MOST,
    "vllm:kv_cache_usage_perc": 1,
    "vllm:cache_config_info": 1,
    "vllm:request_prefill_kv_computed_tokens_count": _AMOUNT_MOST,
    "vllm:request_prefill_kv_computed_tokens_sum": _AMOUNT_MOST,
}
_MOST: Final = _SGLANG | _VLLM
"""The largest value that is believed."""
_PAGE: Final = Exposition(list(_MOST))

_Rank = dict[str, float]
"""Values by name."""


class MetricsPage:
    """`LoadSource`: of whichever engine's names are on the page."""

    is_page: Final = True

    def __init__(self, rank: int | None) -> None:
        self.kind = SourceKind.SGLANG_METRICS
        self._rank = rank
        self._route = MetricsRoute()

    async def read(self, client: EngineClient) -> EngineLoad:
        """The sum over the worker's ranks. Errors: EngineError."""
        samples = _PAGE.samples(await self._route.page(client))
        for sample in samples:
            most = _MOST[sample.name]
            if not (math.isfinite(sample.value) and 0 <= sample.value <= most):
                raise MalformedError(
                    f"/metrics: {sample.name} is {sample.value}, not in 0 to {most}", field=sample.name
                )
        named = {sample.name for sample in samples}
        if "vllm:num_requests_running" in named:
            self.kind = SourceKind.VLLM_METRICS
            return _vllm_load(samples, self._rank)
        if "sglang:num_running_reqs" in named:
            self.kind = SourceKind.SGLANG_METRICS
            return _sglang_load(samples, self._rank)
        raise NotThereError("/metrics has neither SGLang's nor vLLM's numbers of requests", field="/metrics")


def _sglang_load(samples: Iterable[Sample], rank: int | None) -> EngineLoad:
    """Gauges are a rank's. Counters of answered requests are the engine's, and their mean is a rank's too."""
    ranks = [each for _, each in of_rank(_by_rank(samples, "dp_rank").items(), rank, "/metrics")]
    totals: dict[str, float] = defaultdict(float)
    for sample in samples:
        totals[sample.name] += sample.value
    requests = totals.get("sglang:num_requests_total")
    prompt = totals.get("sglang:prompt_tokens_total")
    uncached = None if prompt is None else max(0.0, prompt - totals["sglang:cached_tokens_total"])
    return EngineLoad(
        running=_sum(ranks, "sglang:num_running_reqs"),
        waiting=_sum(ranks, "sglang:num_queue_reqs"),
        used_tokens=_sum(ranks, "sglang:num_used_tokens"),
        max_tokens=_sum(ranks, "sglang:max_total_num_tokens"),
        finished_requests=None if requests is None or uncached is None else int(requests),
        finished_uncached_tokens=None if requests is None or uncached is None else int(uncached),
    )


def _vllm_load(samples: Iterable[Sample], rank: int | None) -> EngineLoad:
    capacities = {
        rank_of(sample.labels, "engine"): _capacity(sample.labels)
        for sample in samples
        if sample.name == "vllm:cache_config_info"
    }
    ranks = of_rank(_by_rank(samples, "engine").items(), rank, "/metrics")
    pools = [capacities.get(number, capacities.get(None, 0)) for number, _ in ranks]
    values = [each for _, each in ranks]
    usages = [each.get("vllm:kv_cache_usage_perc", 0.0) for each in values]
    computed = "vllm:request_prefill_kv_computed_tokens"
    return EngineLoad(
        running=_sum(values, "vllm:num_requests_running"),
        waiting=_sum(values, "vllm:num_requests_waiting"),
        used_tokens=round(sum(usage * pool for usage, pool in zip(usages, pools, strict=True))),
        max_tokens=sum(pools),
        finished_requests=total([_whole(each, f"{computed}_count") for each in values]),
        finished_uncached_tokens=total([_whole(each, f"{computed}_sum") for each in values]),
    )


def _capacity(labels: Mapping[str, str]) -> int:
    """Tokens of a rank's KV pool; 0 when its configuration does not say.

    Newer versions tell it, right for hybrid models too; else it is the blocks'. Values are text, `None` too.
    """
    told = _number(labels, "kv_cache_size_tokens") or _number(labels, "num_gpu_blocks") * _number(
        labels, "block_size"
    )
    return min(told, _AMOUNT_MOST)


def _number(labels: Mapping[str, str], name: str) -> int:
    text = labels.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= 15 else 0


def _by_rank(samples: Iterable[Sample], label: str) -> dict[int | None, _Rank]:
    """The values of each rank: the largest where several processes of a rank, or its priorities, tell one.

    A name whose samples have no such label is no rank's, unless no sample has it.
    """
    found: dict[int | None, _Rank] = defaultdict(dict)
    for sample in samples:
        values = found[rank_of(sample.labels, label)]
        values[sample.name] = max(sample.value, values.get(sample.name, 0.0))
    if len(found) > 1:
        found.pop(None, None)
    return dict(found)


def _sum(ranks: Iterable[_Rank], name: str) -> int:
    return int(sum(values.get(name, 0.0) for values in ranks))


def _whole(values: _Rank, name: str) -> int | None:
    value = values.get(name)
    return None if value is None else int(value)
