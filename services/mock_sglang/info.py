"""What the double tells of itself: /server_info, /v1/loads, /v1/models, /metrics."""

import time
from datetime import UTC, datetime
from typing import Any

import orjson

from kvcompass.engine_model.engine import ModelLoad
from services.mock_sglang.settings import MockSettings

VERSION = "0.5.10"


def models(settings: MockSettings, started: int) -> dict[str, Any]:
    """/v1/models."""
    return {"object": "list", "data": [model_card(settings, started)]}


def model_card(settings: MockSettings, started: int) -> dict[str, Any]:
    """/v1/models/{id}."""
    return {
        "id": settings.model,
        "object": "model",
        "created": started,
        "owned_by": "sglang",
        "root": settings.model,
        "parent": None,
        "max_model_len": settings.context_length,
    }


def server_info(settings: MockSettings, load: ModelLoad) -> dict[str, Any]:
    """/server_info: the arguments a reader looks for, and under `kvcompass_mock` what only a double knows.

    Busy times are model time in us: their difference over a window, divided by the window's model time, is
    the load factor.
    """
    events = {
        "publisher": "zmq" if settings.event_endpoint else "null",
        "endpoint": settings.event_endpoint,
        "replay_endpoint": settings.replay_endpoint or None,
        "topic": settings.event_topic,
        "buffer_steps": settings.event_ring_batches,
    }
    return {
        "version": VERSION,
        "model_path": settings.model,
        "served_model_name": settings.model,
        "tokenizer_path": settings.tokenizer,
        "context_length": settings.context_length,
        "page_size": settings.page_size,
        "max_total_num_tokens": load.capacity_tokens,
        "max_running_requests": settings.max_running_requests,
        "max_queued_requests": settings.max_queued_requests,
        "stream_interval": settings.stream_interval,
        "enable_cache_report": True,
        "disable_radix_cache": False,
        "schedule_policy": "fcfs",
        "radix_eviction_policy": "lru",
        "dp_size": 1,
        "tp_size": 1,
        "kv_events_config": orjson.dumps(events).decode() if settings.event_endpoint else None,
        "internal_states": [{"last_gen_throughput": _throughput(settings, load)}],
        "kvcompass_mock": {
            "time_scale": settings.time_scale,
            "prefill_busy_us": load.prefill_busy_us,
            "decode_busy_us": load.decode_busy_us,
            "prompt_tokens": load.prompt_tokens,
            "cached_tokens": load.cached_tokens,
            "generated_tokens": load.generated_tokens,
        },
    }


def loads(settings: MockSettings, load: ModelLoad) -> dict[str, Any]:
    """/v1/loads of one dp rank, core and queue sections."""
    usage = load.used_tokens / load.capacity_tokens
    throughput = _throughput(settings, load)
    rank = {
        "dp_rank": 0,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_used_tokens": load.used_tokens,
        "max_total_num_tokens": load.capacity_tokens,
        "token_usage": round(usage, 4),
        "gen_throughput": throughput,
        "cache_hit_rate": _hit_rate(load),
        "utilization": round(max(usage, load.running / settings.max_running_requests), 4),
        "max_running_requests": settings.max_running_requests,
        "queues": {"waiting": load.waiting, "grammar": 0, "paused": 0, "retracted": 0},
        "num_total_reqs": load.running + load.waiting,
    }
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": VERSION,
        "dp_rank_count": 1,
        "loads": [rank],
        "aggregate": {
            "total_running_reqs": load.running,
            "total_waiting_reqs": load.waiting,
            "total_reqs": load.running + load.waiting,
            "avg_token_usage": rank["token_usage"],
            "avg_throughput": throughput,
            "avg_utilization": rank["utilization"],
        },
    }


def metrics(settings: MockSettings, load: ModelLoad) -> bytes:
    """/metrics under SGLang's names, with its counters in place of histograms."""
    label = f'{{model_name="{settings.model}"}}'
    rows = [
        ("num_running_reqs", "gauge", load.running),
        ("num_queue_reqs", "gauge", load.waiting),
        ("num_used_tokens", "gauge", load.used_tokens),
        ("token_usage", "gauge", load.used_tokens / load.capacity_tokens),
        ("cache_hit_rate", "gauge", _hit_rate(load)),
        ("gen_throughput", "gauge", _throughput(settings, load)),
        ("prompt_tokens_total", "counter", load.prompt_tokens),
        ("cached_tokens_total", "counter", load.cached_tokens),
        ("generation_tokens_total", "counter", load.generated_tokens),
    ]
    return "".join(
        f"# TYPE sglang:{name} {kind}\nsglang:{name}{label} {value}\n" for name, kind, value in rows
    ).encode()


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def _throughput(settings: MockSettings, load: ModelLoad) -> float:
    """Tokens a second of wall time that the present batch decodes."""
    if not load.step_us:
        return 0.0
    return round(load.decoding * 1e6 / (load.step_us * settings.time_scale), 2)


def _hit_rate(load: ModelLoad) -> float:
    return round(load.cached_tokens / load.prompt_tokens, 4) if load.prompt_tokens else 0.0
