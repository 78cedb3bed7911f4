"""SGLang 0.5.23: events in map form, replies with their topic, prefill counters in the load."""

from datetime import UTC, datetime
from typing import Any

from kvcompass.engine_model import TierEvents
from services.mock_sglang.load_report import LoadReport, RankLoad
from services.mock_sglang.profiles.block_names import NamesOfTheirOwn
from services.mock_sglang.profiles.map_events import encode_batch
from services.mock_sglang.profiles.profile import Profile

END_SEQUENCE = b"\xff" * 8


def replayed(topic: bytes, sequence: bytes, payload: bytes) -> tuple[bytes, ...]:
    """Replies are the live frames."""
    return b"", topic, sequence, payload


def loads(report: LoadReport) -> dict[str, Any]:
    """/v1/loads."""
    return {
        "timestamp": datetime.fromtimestamp(report.timestamp_s, UTC).isoformat(),
        "version": report.version,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": [_rank(load, report.timestamp_s) for load in report.ranks],
    }


def _rank(load: RankLoad, timestamp_s: float) -> dict[str, Any]:
    model = load.model
    total = model.used_tokens + model.waiting_tokens
    return {
        "timestamp": timestamp_s,
        "dp_rank": load.dp_rank,
        "num_running_reqs": model.running,
        "num_waiting_reqs": model.waiting,
        "num_waiting_uncached_tokens": model.waiting_uncached_tokens,
        "num_used_tokens": model.used_tokens,
        "num_total_tokens": total,
        "num_active_tokens": total,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": model.capacity_tokens,
        "max_running_requests": load.max_running_requests,
        "token_usage": round(load.usage, 4),
        "gen_throughput": load.throughput,
        "cache_hit_rate": load.hit_rate,
        "utilization": round(load.utilization, 4),
        "total_prefill_uncached_tokens": model.prefilled_tokens,
        "total_prefill_busy_us": load.prefill_busy_us,
        "decode_moments": None,
        "queues": load.queues,
    }


PROFILE = Profile(
    version="0.5.23",
    tier_events=TierEvents.ALL,
    event_report=NamesOfTheirOwn,
    encode_batch=encode_batch,
    replayed=replayed,
    replay_end=(b"", b"", END_SEQUENCE, b""),
    loads=loads,
    get_load=None,
    ready_route=True,
    load_publisher=True,
    kv_events_info=True,
    chat_token_ids=True,
    salts=True,
    extra_key=False,
    uncached_details={"cached_tokens": 0},
)
