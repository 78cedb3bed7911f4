"""SGLang 0.5.10: events in array form that know no tiers and no salts."""

from datetime import UTC, datetime
from typing import Any

from kvcompass.engine_model import TierEvents
from services.mock_sglang.load_report import LoadReport, RankLoad
from services.mock_sglang.profiles.array_events import encode_batch
from services.mock_sglang.profiles.block_names import SharedNames
from services.mock_sglang.profiles.profile import Profile

END_SEQUENCE = b"\xff" * 8


def replayed(_topic: bytes, sequence: bytes, payload: bytes) -> tuple[bytes, ...]:
    """Replies carry no topic."""
    return b"", sequence, payload


def loads(report: LoadReport) -> dict[str, Any]:
    """/v1/loads: core and queue sections, and sums over the ranks."""
    ranks = [_ranked(report, load) | _rank(load) for load in report.ranks]
    running = sum(load.model.running for load in report.ranks)
    waiting = sum(load.model.waiting for load in report.ranks)
    return {
        "timestamp": datetime.fromtimestamp(report.timestamp_s, UTC).isoformat(),
        "version": report.version,
        "dp_rank_count": len(ranks),
        "loads": ranks,
        "aggregate": {
            "total_running_reqs": running,
            "total_waiting_reqs": waiting,
            "total_reqs": running + waiting,
            "avg_token_usage": _mean([load["token_usage"] for load in ranks]),
            "avg_throughput": _mean([load["gen_throughput"] for load in ranks]),
            "avg_utilization": _mean([load["utilization"] for load in ranks]),
        },
    }


def _rank(load: RankLoad) -> dict[str, Any]:
    return {
        "num_running_reqs": load.model.running,
        "num_waiting_reqs": load.model.waiting,
        "num_used_tokens": load.model.used_tokens,
        "max_total_num_tokens": load.model.capacity_tokens,
        "token_usage": round(load.usage, 4),
        "gen_throughput": load.throughput,
        "cache_hit_rate": load.hit_rate,
        "utilization": round(load.utilization, 4),
        "max_running_requests": load.max_running_requests,
        "queues": load.queues,
        "num_total_reqs": load.requests,
    }


def _ranked(report: LoadReport, load: RankLoad) -> dict[str, Any]:
    """The only rank of an engine has no number."""
    return {"dp_rank": load.dp_rank} if report.dp_size > 1 else {}


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def get_load(report: LoadReport) -> list[dict[str, Any]]:
    """/get_load."""
    return [
        {
            "rid": None,
            "http_worker_ipc": None,
            "dp_rank": load.dp_rank if report.dp_size > 1 else None,
            "num_reqs": load.requests,
            "num_waiting_reqs": load.model.waiting,
            "num_tokens": load.model.used_tokens + load.model.waiting_tokens,
            "ts_tic": report.timestamp_s,
        }
        for load in report.ranks
    ]


PROFILE = Profile(
    version="0.5.10",
    tier_events=TierEvents.UNTOLD,
    event_report=SharedNames,
    encode_batch=encode_batch,
    replayed=replayed,
    replay_end=(b"", END_SEQUENCE, b""),
    loads=loads,
    get_load=get_load,
    ready_route=False,
    load_publisher=False,
    kv_events_info=False,
    chat_token_ids=False,
    salts=False,
    extra_key=True,
    uncached_details=None,
)
