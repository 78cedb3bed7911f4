"""What is read off `/metrics`: vLLM's page as its own library writes it, and any page at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kvcompass.roles.queue_estimate import EngineLoad
from services.runtime.http_server import HttpServer
from services.worker_agent.engine_client import EngineClient, MalformedError
from services.worker_agent.engine_facts import ask_facts
from services.worker_agent.load_sources.exposition import Exposition
from services.worker_agent.load_sources.metrics_page import MetricsPage
from services.worker_agent.load_sources.source import SourceKind

LABELS = ("model_name", "engine")


def vllm_page(engines: int = 1, *, config: dict[str, str] | None = None) -> bytes:
    """As vLLM 0.33 registers its metrics (`vllm/v1/metrics/loggers.py`): engine i runs i + 3 requests."""
    registry = CollectorRegistry()
    running = Gauge("vllm:num_requests_running", "R.", LABELS, registry=registry)
    waiting = Gauge("vllm:num_requests_waiting", "W.", LABELS, registry=registry)
    usage = Gauge("vllm:kv_cache_usage_perc", "U.", LABELS, registry=registry)
    prompt = Counter("vllm:prompt_tokens", "P.", LABELS, registry=registry)
    computed = Histogram(
        "vllm:request_prefill_kv_computed_tokens", "C.", LABELS, buckets=[1, 10, 1_000], registry=registry
    )
    config = {"block_size": "16", "num_gpu_blocks": "1000", "kv_cache_size_tokens": "None"} | (config or {})
    info = Gauge("vllm:cache_config_info", "I.", (*config, "engine"), registry=registry)
    for engine in map(str, range(engines)):
        labels = {"model_name": "m", "engine": engine}
        running.labels(**labels).set(int(engine) + 3)
        waiting.labels(**labels).set(int(engine) * 10)
        usage.labels(**labels).set(0.25)
        prompt.labels(**labels).inc(999)
        for tokens in (100, 300):
            computed.labels(**labels).observe(tokens)
        info.labels(**config, engine=engine).set(1)
    return generate_latest(registry)


def sglang_page(**gauges: float) -> bytes:
    """As a rank of SGLang with priorities tells them: once for all, and once for a priority."""
    lines = []
    for name, value in gauges.items():
        labels = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        lines.append(f'sglang:{name}{{{labels},priority=""}} {value}')
        lines.append(f'sglang:{name}{{{labels},priority="5"}} {value / 2}')
        lines.append(f'sglang:{name}{{{labels.replace("0", "1", 1)},priority=""}} {value}')
    return "\n".join([*lines, ""]).encode()


@asynccontextmanager
async def serving(
    page: bytes, path: str = "/metrics/", elsewhere: int = 404, version: bytes = b""
) -> AsyncIterator[EngineClient]:
    """An engine that has this page there, and answers `elsewhere` at its other name."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        body = {path: page, "/version": version}.get(scope["path"])
        await send(
            {"type": "http.response.start", "status": elsewhere if body is None else 200, "headers": []}
        )
        await send({"type": "http.response.body", "body": body or b""})

    server = HttpServer(app, "127.0.0.1:0")
    await server.start()
    async with EngineClient(f"http://127.0.0.1:{server.port}", api_key="", timeout_ms=2_000) as client:
        yield client
    await server.stop(drain_s=0.0)


async def load_of(page: bytes, rank: int | None = None) -> EngineLoad:
    async with serving(page) as client:
        return await MetricsPage(rank).read(client)


@pytest.mark.parametrize("elsewhere", [404, 307, 301])
@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
async def test_vllm_is_read_by_its_own_names_wherever_it_mounts_the_page(path: str, elsewhere: int) -> None:
    """Starlette redirects to the one that it has."""
    source = MetricsPage(None)
    async with serving(vllm_page(), path, elsewhere, b'{"version":"0.33.0"}') as client:
        facts = await ask_facts(client, "vllm")
        assert (facts.version, facts.page_size) == ("0.33.0", 16)
        for _ in range(2):
            load = await source.read(client)
    assert source.kind is SourceKind.VLLM_METRICS
    assert load == EngineLoad(3, 0, 4_000, 16_000, finished_requests=2, finished_uncached_tokens=400)
    assert load.lacks == ("waiting_uncached_tokens", "prefill_rate")


async def test_engines_of_one_vllm_are_ranks() -> None:
    page = vllm_page(3)
    assert await load_of(page, 2) == EngineLoad(
        5, 20, 4_000, 16_000, finished_requests=2, finished_uncached_tokens=400
    )
    whole = await load_of(page)
    assert (whole.running, whole.waiting, whole.used_tokens, whole.max_tokens) == (12, 30, 12_000, 48_000)
    with pytest.raises(MalformedError, match="no rank 3") as caught:
        await load_of(page, 3)
    assert caught.value.field == "dp_rank"


@pytest.mark.parametrize(
    ("config", "capacity"),
    [
        ({"kv_cache_size_tokens": "12345"}, 12_345),
        ({"num_gpu_blocks": "None"}, 0),
        ({"block_size": "-16"}, 0),
        ({"num_gpu_blocks": "9" * 400}, 0),
    ],
    ids=str,
)
async def test_vllms_memory_is_what_its_configuration_says_or_unknown(
    config: dict[str, str], capacity: int
) -> None:
    load = await load_of(vllm_page(config=config))
    assert (load.max_tokens, load.used_tokens) == (capacity, round(capacity / 4))
    assert ("memory" in load.lacks) == (capacity == 0)


async def test_a_gauge_that_several_processes_of_a_rank_tell_counts_once() -> None:
    load = await load_of(sglang_page(num_running_reqs=6, num_queue_reqs=2, max_total_num_tokens=1_000))
    assert (load.running, load.waiting, load.max_tokens) == (6, 2, 1_000)


NAMES = ("sglang:a", "vllm:b_total")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12)
LABEL_SETS = st.dictionaries(st.sampled_from(["x", "y_1"]), TEXT, max_size=2)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "other"]), LABEL_SETS, st.floats(allow_nan=False)), max_size=8
    )
)
def test_samples_are_those_that_prometheus_own_parser_finds(
    written: list[tuple[str, dict[str, str], float]],
) -> None:
    """Label values are compared as they are escaped: engines' own have nothing to escape."""
    registry = CollectorRegistry()
    gauges: dict[tuple[str, tuple[str, ...]], Gauge] = {}
    for name, labels, value in written:
        key = (name, tuple(sorted(labels)))
        if not any(other[0] == name for other in gauges):
            gauges[key] = Gauge(f"sglang:{name}", "Of sglang:a{x} 5", key[1], registry=registry)
        if key in gauges:
            (gauges[key].labels(**labels) if labels else gauges[key]).set(value)
    page = generate_latest(registry)
    wanted = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name in NAMES
    ]
    found = [
        (sample.name, {name: unescaped(value) for name, value in sample.labels.items()}, sample.value)
        for sample in Exposition(NAMES).samples(page)
    ]
    assert found == wanted


def unescaped(value: str) -> str:
    parts = value.split("\\\\")
    return "\\".join(part.replace("\\n", "\n").replace('\\"', '"') for part in parts)


@given(st.binary(max_size=300))
def test_any_bytes_are_samples_or_refused_by_name(page: bytes) -> None:
    for text in (page, b"sglang:a{" + page, b'sglang:a{x="' + page + b'"} 1\n', b"sglang:a " + page):
        try:
            samples = Exposition(NAMES).samples(text)
        except MalformedError as error:
            assert error.field in NAMES
        else:
            assert all(sample.name in NAMES for sample in samples)
