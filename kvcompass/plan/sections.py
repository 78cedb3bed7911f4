"""The fields of each section of a plan file: name, reader, and the default of those that may be left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvcompass.plan import values
from kvcompass.plan.model import IndexRule, LengthRule, RoutingRule, SharingGroup

REQUIRED: Final = object()
UNASSIGNED: Final = -1
"""Table and slot of a worker that has been given none yet."""
DEFAULT_SHARING_GROUP: Final = SharingGroup("default")
"""The one group of a plan that names none."""
TABLE_MAX: Final = 4_095
"""Table ids index arrays, so that a slip of the pen must not cost gigabytes."""

TABLE_ENTRIES_MAX: Final = 390_000_000
"""A table of more could not double: a word of a patch names each node (`kvcompass.index.shape`)."""

_SLOTS_MAX: Final = 32
_DP_RANKS_MAX: Final = 1_024
_MS_MAX: Final = 60_000.0
_MS_PER_TOKEN_MAX: Final = 1_000.0
_TOKENS_MAX: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section."""

    read: values.Reader
    default: Any = REQUIRED


Fields = Mapping[str, Field]

FLEET: Final[Fields] = {
    "name": Field(values.identifier),
    "plan_version": Field(values.integer(1, (1 << 53) - 1)),
}

MODEL: Final[Fields] = {
    "id": Field(values.text),
    "tokenizer": Field(values.text),
    "chat_template": Field(values.text),
    "block_size": Field(values.integer(1, 65_536)),
    "context_length": Field(values.integer(1, _TOKENS_MAX)),
}

_STRETCH_MAX: Final = 1.4
"""The second rung stays twice the first, for which the smallest context has room."""
_LENGTHS: Final = LengthRule()
LENGTHS: Final[Fields] = {
    "policy": Field(values.choice("ladder", "paper"), _LENGTHS.policy),
    "quantum": Field(values.integer(1, 1 << 20), _LENGTHS.quantum),
    "stretch": Field(values.number(above=0, most=_STRETCH_MAX), _LENGTHS.stretch),
    "levels": Field(values.integer(1, 64), _LENGTHS.levels),
}

_INDEX: Final = IndexRule()
INDEX: Final[Fields] = {
    "value_bits": Field(values.choice(32, 64), _INDEX.value_bits),
    "layout": Field(values.choice("fingerprints", "paper"), _INDEX.layout),
    "expected_entries": Field(values.integer(1, TABLE_ENTRIES_MAX), _INDEX.expected_entries),
    "worker_entries_max": Field(values.integer(0, 1 << 40), _INDEX.worker_entries_max),
    "slots_given": Field(values.integers(0, _SLOTS_MAX, most_items=TABLE_MAX + 1), _INDEX.slots_given),
}

_LEASE_MS_MIN: Final = 600
"""Loads are told every 100 ms: of a shorter lease that is more than the sixth that agents keep to."""
_BROADCAST_MS_MIN: Final = 20
"""A round of telling every other region takes milliseconds."""
_MEMORY_MS_MIN: Final = 1_000
"""Belief and predicted holdings that fade within a second are gone before a prompt comes again."""
_WEIGHT_MIN: Final = 0.01
"""Less, and a hundred observations change nothing."""
_ROUTING: Final = RoutingRule()
ROUTING: Final[Fields] = {
    "queue_scale_ms": Field(values.number(least=1, most=_MS_MAX), _ROUTING.queue_scale_ms),
    "capacity_price_max": Field(values.number(above=0, most=1_000), _ROUTING.capacity_price_max),
    "wan_charge": Field(values.choice("round_trip", "one_way"), _ROUTING.wan_charge),
    "decode_tokens": Field(values.integer(0, 1_000_000), _ROUTING.decode_tokens),
    "belief_weight": Field(values.number(least=_WEIGHT_MIN, most=1), _ROUTING.belief_weight),
    "belief_recovery_ms": Field(values.integer(_MEMORY_MS_MIN, 86_400_000), _ROUTING.belief_recovery_ms),
    "ewma_weight": Field(values.number(least=_WEIGHT_MIN, most=1), _ROUTING.ewma_weight),
    "broadcast_period_ms": Field(values.integer(_BROADCAST_MS_MIN, 3_600_000), _ROUTING.broadcast_period_ms),
    "lease_ms": Field(values.integer(_LEASE_MS_MIN, 3_600_000), _ROUTING.lease_ms),
    "predicted_ttl_ms": Field(values.integer(_MEMORY_MS_MIN, 86_400_000), _ROUTING.predicted_ttl_ms),
}

REGION: Final[Fields] = {"id": Field(values.identifier)}

EDGE: Final[Fields] = {
    "id": Field(values.identifier),
    "region": Field(values.text),
    "address": Field(values.address),
    "peer_address": Field(values.address),
    "grpc_address": Field(values.address),
    "ops_address": Field(values.optional_address, ""),
}

UNIT: Final[Fields] = {
    "id": Field(values.identifier),
    "shard": Field(values.integer(0, 65_535)),
    "region": Field(values.text),
    "address": Field(values.address),
    "ops_address": Field(values.optional_address, ""),
}

WORKER: Final[Fields] = {
    "id": Field(values.identifier),
    "region": Field(values.text),
    "url": Field(values.worker_url),
    "events": Field(values.optional_endpoint, ""),
    "table": Field(values.integer(0, TABLE_MAX), UNASSIGNED),
    "slot": Field(values.integer(0, _SLOTS_MAX - 1), UNASSIGNED),
    "prefill_ms_per_token": Field(values.number(above=0, most=_MS_PER_TOKEN_MAX)),
    "reload_ms_per_token": Field(values.number(above=0, most=_MS_PER_TOKEN_MAX)),
    "replay": Field(values.optional_endpoint, ""),
    "sharing_group": Field(values.text, DEFAULT_SHARING_GROUP.id),
    "drain": Field(values.boolean, False),
    "ops_address": Field(values.optional_address, ""),
    "dp_rank": Field(values.integer(0, _DP_RANKS_MAX - 1), None),
    "decode_ms_per_context_token": Field(values.number(above=0, most=1.0, or_zero=True), None),
    "holdings": Field(values.choice("events", "predicted"), "events"),
}

SHARING_GROUP: Final[Fields] = {
    "id": Field(values.identifier),
    "salt": Field(values.any_text),
}
WAN_MS: Final = Field(values.number(above=0, most=_MS_MAX))
"""One entry of the matrix."""
