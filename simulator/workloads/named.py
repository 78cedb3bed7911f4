"""Workloads by name: each made from the files of the data folder where it has them, else made up."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator.fleet import Fleet
from simulator.streams import random_stream
from simulator.workloads import chat_rules
from simulator.workloads.chat import Chat, ChatRules
from simulator.workloads.countries import WILDCHAT_SHARES, ByCountry, nearest_regions
from simulator.workloads.draw import Draw
from simulator.workloads.mixed import Mixed
from simulator.workloads.mixed_synthetic import synthetic_datasets
from simulator.workloads.mixed_texts import text_datasets
from simulator.workloads.options import WorkloadOptions
from simulator.workloads.tenants import Tenants
from simulator.workloads.tokens import TokenSource
from simulator.workloads.workload import Workload

Make = Callable[[Fleet, int, WorkloadOptions], Workload]


def _mixed(fleet: Fleet, seed: int, options: WorkloadOptions) -> Workload:
    tokens = TokenSource(seed)
    if options.data is None:
        origin, datasets = "synthetic", synthetic_datasets(tokens, seed)
    else:
        origin, datasets = "published texts, synthetic answers", text_datasets(options.data)
    return Mixed(
        origin,
        datasets,
        tenants=_tenants(options.tenants, tokens, seed),
        origins=by_weight(fleet, seed),
        tokens=tokens,
        seed=seed,
    )


def _wildchat(fleet: Fleet, seed: int, options: WorkloadOptions) -> Workload:
    nearest = nearest_regions(list(WILDCHAT_SHARES), fleet.plan.regions)
    tokens = TokenSource(seed)
    return Chat(
        chat_rules.wildchat(),
        tenants=_tenants(options.tenants, tokens, seed),
        origins=by_weight(fleet, seed)
        if nearest is None
        else ByCountry(WILDCHAT_SHARES, nearest, random_stream(seed, "workload.origins")),
        tokens=tokens,
        seed=seed,
    )


def _chat(rules: Callable[[], ChatRules], *, whole: bool = False) -> Make:
    """Return the maker of a chat workload.

    Args:
        rules: What it is like.
        whole: Its prompts stand for a trace's, which hold all that was asked: no tenant's prompt comes
            before.
    """

    def make(fleet: Fleet, seed: int, options: WorkloadOptions) -> Workload:
        tokens = TokenSource(seed)
        tenants = _tenants(0 if whole else options.tenants, tokens, seed)
        return Chat(rules(), tenants=tenants, origins=by_weight(fleet, seed), tokens=tokens, seed=seed)

    return make


WORKLOADS: Final[dict[str, Make]] = {
    "mixed": _mixed,
    "wildchat": _wildchat,
    "lmsys": _chat(chat_rules.lmsys),
    "mooncake": _chat(chat_rules.mooncake_like, whole=True),
    "bailian": _chat(chat_rules.bailian_like, whole=True),
    "azure-conv": _chat(chat_rules.azure_conversation_like, whole=True),
    "azure-code": _chat(chat_rules.azure_code_like, whole=True),
}
"""By name."""

TRACE_FILES: Final = {
    "mooncake": Path("traces", "mooncake_conversation_trace.jsonl"),
    "azure-conv": Path("traces", "AzureLLMInferenceTrace_conv.csv"),
    "azure-code": Path("traces", "AzureLLMInferenceTrace_code.csv"),
}
"""The recorded workloads of the data folder, which stand before the synthetic ones of their names."""


def _tenants(count: int, tokens: TokenSource, seed: int) -> Tenants:
    return Tenants(count, tokens, random_stream(seed, "workload.tenants"))


def by_weight(fleet: Fleet, seed: int) -> Draw:
    """Return draws of the fleet's regions by its own weights."""
    return Draw(fleet.origin_weights, random_stream(seed, "workload.origins"))
