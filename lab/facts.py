"""What a run was: the workload's source, sizes and shares, and the fleet it met."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from kvcompass.levels import first_length
from kvcompass.plan.model import Plan
from lab.workload.request import Workload
from lab.workload.shares import Shares, prefix_shares
from services.prompt import PromptEncoder


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a run, apart from its results."""

    workload_source: str
    seed: int
    duration_ms: float
    time_scale: float
    kinds: dict[str, int]
    regions: dict[str, int]
    shares: Shares
    regions_wan_ms: dict[str, dict[str, float]]
    """One way, model ms."""

    def as_json(self) -> dict[str, object]:
        """Plain values; `shares` also as parts of all requests."""
        values = asdict(self)
        values["shares"] |= {
            "shared_part": round(self.shares.shared_part, 4),
            "shared_elsewhere_only_part": round(self.shares.shared_elsewhere_only_part, 4),
        }
        return values


def longest_first_length(plan: Plan) -> int:
    """Tokens: the longest prefix that any pair of regions asks for before crossing pays."""
    regions = range(len(plan.regions))
    return max(first_length(plan, origin, region) for origin in regions for region in regions)


def gather_facts(workload: Workload, plan: Plan, time_scale: float) -> Facts:
    """Tokenizes every prompt as the engines will: about 20 ms a request."""
    encoder = PromptEncoder.load(plan.model.tokenizer, plan.model.chat_template, Path())
    prompts = [
        encoder.encode(
            encoder.render_chat(list(request.messages), list(request.tools) or None), rendered=True
        )
        for request in workload.requests
    ]
    return Facts(
        workload_source=workload.source,
        seed=workload.seed,
        duration_ms=workload.duration_ms,
        time_scale=time_scale,
        kinds=dict(Counter(request.kind for request in workload.requests)),
        regions=dict(Counter(request.region for request in workload.requests)),
        shares=prefix_shares(
            prompts, [request.region for request in workload.requests], longest_first_length(plan)
        ),
        regions_wan_ms={
            origin: {
                region: round(plan.wan_ms[i][j] / time_scale, 3) for j, region in enumerate(plan.regions)
            }
            for i, origin in enumerate(plan.regions)
        },
    )
