"""SGLang 0.5.11: the array form of 0.5.10, and events of the host tier."""

from dataclasses import replace
from typing import Any

from kvcompass.engine_model import TierEvents
from services.mock_sglang.load_report import LoadReport
from services.mock_sglang.profiles import sglang_0_5_10


def get_load(report: LoadReport) -> list[dict[str, Any]]:
    """/get_load, a projection of /v1/loads here."""
    return [
        {
            "dp_rank": load.dp_rank,
            "num_reqs": load.requests,
            "num_waiting_reqs": load.model.waiting,
            "num_tokens": load.model.used_tokens + load.model.waiting_tokens,
            "num_pending_tokens": load.model.waiting_tokens,
            "ts_tic": report.timestamp_s,
        }
        for load in report.ranks
    ]


PROFILE = replace(
    sglang_0_5_10.PROFILE,
    version="0.5.11",
    tier_events=TierEvents.NOT_RECOMPUTED,
    get_load=get_load,
    salts=True,
)
