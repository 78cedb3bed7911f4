"""Settings of a worker agent process. Times are in the unit of their name; every default says why."""

import math
from typing import Final, Literal

import msgspec

from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.holdings import RepeatedStores
from kvcompass.roles.replica_prefill import PrefillRules
from services.runtime.plan_signature import check_plan_key
from services.runtime.settings import CommonSettings, SettingsError, check_range

_RULES: Final = PrefillRules()


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the engines are asked and when they count as gone."""

    kind: Literal["sglang", "vllm"] = "sglang"
    """vLLM tells a store again when nothing changed; SGLang never does, but may store equal tokens twice. An
    engine of the other kind is refused."""
    api_key: str = ""
    """Bearer key of the engines' HTTP listeners; empty sends none."""
    api_key_file: str = ""
    """A file with the same, instead of it. Relative to the settings file."""
    load_period_ms: int = 100
    """Between two questions for the load: a queue moves by a prefill in about that time. At most a sixth of
    the plan's lease, or the lease is not renewed in time."""
    metrics_period_ms: int = 400
    """The same where the load is read off `/metrics`: writing that page takes an engine's HTTP process some
    10 ms. At most a sixth of the plan's lease, too, with vLLM, which tells it nowhere else."""
    stalled_ms: int = 30_000
    """A scheduler of SGLang that has written nothing new for so long hangs, though its HTTP face answers:
    idle ones write every second, and no chunk of a prompt takes as long."""
    load_timeout_ms: int = 2_000
    """An engine answers between two steps, and the prefill of a long chunk takes most of a second."""
    failures_before_unreachable: int = 2
    """In a row. One may be a connection that the engine had just closed."""
    event_timeout_ms: int = 3_000
    """For the event publisher to accept a connection, and for each answer of a replay; ten times that for all
    answers of one."""
    silent_ms: int = 10_000
    """An engine that serves requests for so long and gives no sign of its event publisher is called silent:
    twice what a replay takes that is asked for in the quiet."""
    quiet_ms: int = 2_000
    """After so long without a batch the replay socket is asked for more: a dropped last batch shows nowhere
    else."""


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of the streams to units and edges."""

    answer_timeout_ms: int = 10_000
    """For the answer to a stream's first message: several 300 ms round trips."""
    write_timeout_ms: int = 5_000
    """For one message to be taken by the transport; longer means that the other side reads no more."""
    pending_keys: int = 65_536
    """Edits kept for a unit that is slow; beyond it a full report takes their place."""


class SelfTestSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how it is tested that the engine reads prompts as edges do (docs/self-test.md)."""

    enabled: bool = True
    """One short chat goes through the engine at each attach. Without it a wrong template or tokenizer shows
    only as prefixes that are never found."""
    answer_timeout_ms: int = 30_000
    """For the engine's answer; a busy one answers when the queue before it is done."""
    hearing_ms: int = 5_000
    """For the events of it, after the answer: they are sent by the scheduler's next steps."""


class ReplicaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prefills of popular prefixes that edges ask for; the reasons: `kvcompass.roles.replica_prefill`.

    No edge asks for any yet: nothing chooses what is copied where.
    """

    enabled: bool = True
    """Only edges of the plan can ask, on streams that this agent has opened to them."""
    queued: int = _RULES.queued
    """Prefills that wait for one that is under way, at most; one more is refused."""
    running_most: int = _RULES.running_most
    """Requests that the engine may be running when one begins."""
    step_tokens: int = _RULES.step_tokens
    """Computed at a time; requests that come meanwhile wait for a step at most."""
    spare_percent: int = _RULES.spare_percent
    """Of the KV pool, that stays free."""
    may_evict: bool = _RULES.may_evict
    """Let a replica take the place of what the engine used least recently. An engine that has run for long
    has a full cache, and takes no replica otherwise."""


class MemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of what is known of one worker. A block of 16 tokens takes 200 bytes, one of 64 takes 490."""

    blocks: int = 2_000_000
    """Beyond it new blocks are ignored: the worker is credited with less than it holds."""
    detached_blocks: int = 65_536
    """Blocks whose parent is unknown or gone; beyond it the oldest are forgotten."""


class WorkerAgentSettings(CommonSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TOML file a process."""

    workers: list[str]
    """Ids in the plan of the workers this process serves."""
    engine: EngineSettings = EngineSettings()
    streams: StreamSettings = StreamSettings()
    memory: MemorySettings = MemorySettings()
    self_test: SelfTestSettings = SelfTestSettings()
    replica: ReplicaSettings = ReplicaSettings()


_TIMEOUT_MS: Final = (50, math.inf)
_RANGES: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "engine": {
        # An idle scheduler writes every second.
        "stalled_ms": (2_000, math.inf),
        **dict.fromkeys(("load_timeout_ms", "event_timeout_ms", "silent_ms", "quiet_ms"), _TIMEOUT_MS),
    },
    "streams": {
        "answer_timeout_ms": _TIMEOUT_MS,
        "write_timeout_ms": _TIMEOUT_MS,
        "pending_keys": (1_024, math.inf),
    },
    "memory": {"blocks": (1_024, math.inf)},
    "self_test": {"answer_timeout_ms": _TIMEOUT_MS, "hearing_ms": _TIMEOUT_MS},
    "replica": {
        "queued": (1, 1_024),
        "running_most": (0, 1_024),
        "step_tokens": (1, 1 << 20),
        "spare_percent": (0, 100),
    },
}


def check_settings(settings: WorkerAgentSettings) -> None:
    """Errors: SettingsError for what the types cannot say."""
    check_plan_key(settings.plan_key)
    if not settings.workers:
        raise SettingsError("an agent needs at least one worker of the plan", field="workers")
    if len(set(settings.workers)) != len(settings.workers):
        raise SettingsError("a worker is named twice", field="workers")
    for section, ranges in _RANGES.items():
        check_range(section, getattr(settings, section), ranges)


def check_periods(settings: WorkerAgentSettings, lease_ms: int) -> None:
    """Errors: SettingsError when the load is asked for too rarely to renew the plan's lease.

    The page of metrics is the only source of vLLM, and the last one of SGLang.
    """
    names = ["load_period_ms"] + (["metrics_period_ms"] if settings.engine.kind == "vllm" else [])
    for name in names:
        period_ms, most_ms = getattr(settings.engine, name), lease_ms // 6
        if period_ms > most_ms:
            raise SettingsError(
                f"{period_ms} is too long to renew the plan's lease in time: must be at most {most_ms}, a "
                "sixth of routing.lease_ms",
                field=f"engine.{name}",
            )


def repeated_stores(settings: WorkerAgentSettings) -> RepeatedStores:
    """The engines' habit."""
    return RepeatedStores.IDEMPOTENT if settings.engine.kind == "vllm" else RepeatedStores.COUNTED


def prefill_rules(settings: WorkerAgentSettings, context_length: int) -> PrefillRules:
    """The role's rules. `context_length` is the model's; a prompt leaves room for a token of its answer."""
    replica = settings.replica
    return PrefillRules(
        queued=replica.queued,
        running_most=replica.running_most,
        step_tokens=replica.step_tokens,
        spare_percent=replica.spare_percent,
        may_evict=replica.may_evict,
        tokens_most=context_length - 1,
    )


def tree_limits(settings: WorkerAgentSettings) -> TreeLimits:
    """The role's bounds."""
    return TreeLimits(blocks=settings.memory.blocks, detached=settings.memory.detached_blocks)
