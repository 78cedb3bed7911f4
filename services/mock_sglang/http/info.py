"""What the double tells of itself: /server_info and /v1/models."""

import time
from typing import Any

import orjson

from services.mock_sglang.events.endpoints import port_of
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.ranks.all_ranks import Ranks
from services.mock_sglang.settings import MockSettings

_MODEL_SUMS = (
    "prefill_busy_us",
    "decode_busy_us",
    "prompt_tokens",
    "cached_tokens",
    "cached_host_tokens",
    "generated_tokens",
)


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


def server_info(settings: MockSettings, ranks: Ranks) -> dict[str, Any]:
    """/server_info: the arguments a reader looks for, and under `kvcompass_mock` what only a double knows.

    Busy times are model time in us, summed over the ranks: their difference over a window, divided by the
    window's model time, is the load factor.
    """
    profile = PROFILES[settings.event_profile]
    report = ranks.report()
    first = report.ranks[0]
    body = {
        "version": profile.version,
        "model_path": settings.model,
        "served_model_name": settings.model,
        "tokenizer_path": settings.tokenizer,
        "context_length": settings.context_length,
        "page_size": settings.page_size,
        "max_total_num_tokens": first.model.capacity_tokens,
        "max_running_requests": settings.max_running_requests,
        "max_queued_requests": settings.max_queued_requests,
        "stream_interval": settings.stream_interval,
        "enable_cache_report": settings.enable_cache_report,
        "enable_hierarchical_cache": settings.host_cache_tokens > 0,
        "disable_radix_cache": settings.role == "decode",
        "disaggregation_mode": "null" if settings.role == "both" else settings.role,
        "disaggregation_bootstrap_port": settings.bootstrap_port,
        "schedule_policy": "fcfs",
        "radix_eviction_policy": settings.radix_eviction_policy,
        "dp_size": settings.dp_size,
        "tp_size": 1,
        "kv_events_config": orjson.dumps(_events(settings)).decode() if settings.event_endpoint else None,
        "internal_states": [{"last_gen_throughput": load.throughput} for load in report.ranks],
        "kvcompass_mock": {
            "time_scale": settings.time_scale,
            "resident_blocks": ranks.resident_blocks,
            **{name: sum(getattr(load.model, name) for load in report.ranks) for name in _MODEL_SUMS},
        },
    }
    if profile.kv_events_info:
        body["kv_events"] = _kv_events(settings, ranks)
    return body


def _events(settings: MockSettings) -> dict[str, Any]:
    """`--kv-events-config`; it listens whatever the host, which `bind` says of later versions."""
    return {
        "publisher": "zmq",
        "endpoint": settings.event_endpoint,
        "bind": True,
        "replay_endpoint": settings.replay_endpoint or None,
        "topic": settings.event_topic,
        "buffer_steps": settings.event_ring_batches,
    }


def _kv_events(settings: MockSettings, ranks: Ranks) -> dict[str, Any] | None:
    """Where events and load are published: rank r on a base port + r, at the host of the HTTP listener."""
    first = ranks.all[0]
    if first.publisher is None or (port := port_of(first.publisher.endpoint)) is None:
        return None
    described = {
        "publisher": "zmq",
        "endpoint_host": settings.event_endpoint.removeprefix("tcp://").rpartition(":")[0],
        "endpoint_port_base": port,
        "topic": settings.event_topic,
        "block_size": settings.page_size,
        "dp_size": settings.dp_size,
    }
    if first.load_publisher is not None:
        described["load_endpoint_port_base"] = port_of(first.load_publisher.endpoint)
        described["load_topic"] = "load"
    if (replay := port_of(first.publisher.replay_endpoint)) is not None:
        described["replay_endpoint_port_base"] = replay
    return described


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())
