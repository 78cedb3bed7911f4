"""Forms of event that real engines use beyond the golden bytes, and rubbish."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineNews, EventsLost
from services.worker_agent.event_decoder import BatchError, EventDecoder

STORED = ["BlockStored", [7], None, [1, 2], 2, None, "GPU"]


def decode(*events: Any, decoder: EventDecoder | None = None) -> list[EngineNews]:
    return (decoder or EventDecoder()).decode(msgspec.msgpack.encode([1.0, list(events), 0]))


def only_store(*events: Any) -> BlockStored:
    (event,) = decode(*events)
    assert isinstance(event, BlockStored)
    return event


def test_map_form_of_newer_engines() -> None:
    event = only_store(
        {
            "type": "BlockStored",
            "block_hashes": [b"\x01\x02", b"\x03\x04"],
            "parent_block_hash": b"\x00",
            "token_ids": [1, 2, 3, 4],
            "block_size": 2,
            "lora_id": None,
            "medium": "CPU",
            "session_id": "s",
            "cache_salt": "tenant",
        }
    )
    assert (event.hashes, event.parent) == ((b"\x01\x02", b"\x03\x04"), b"\x00")
    assert (event.tokens.tolist(), event.block_size) == ([1, 2, 3, 4], 2)
    assert (event.medium, event.scope) == ("CPU", "tenant")
    removed, cleared = decode(
        {"type": "BlockRemoved", "block_hashes": [1], "medium": None}, {"type": "AllBlocksCleared"}
    )
    assert removed == BlockRemoved((1,), None)
    assert isinstance(cleared, AllBlocksCleared)


def test_short_and_long_arrays() -> None:
    assert only_store(STORED[:5]).medium is None
    assert only_store([*STORED, None, "more", 3]).medium == "GPU"
    assert decode(["BlockRemoved", [1]]) == [BlockRemoved((1,), None)]


@pytest.mark.parametrize(
    ("event", "scope"),
    [
        (STORED, ""),
        ([*STORED, {"cache_salt": "pepper"}], "pepper"),
        ([*STORED, {"cache_salt": None}], ""),
    ],
)
def test_a_salt_is_the_scope(event: list[Any], scope: str) -> None:
    assert only_store(event).scope == scope


@pytest.mark.parametrize("event", [[*STORED, "adapter-name"], [*STORED[:5], 3, "GPU"]])
def test_an_adapter_is_a_scope_that_no_salt_can_be(event: list[Any]) -> None:
    assert "\0" in only_store(event).scope


def test_caches_without_whole_prefixes_are_left_out() -> None:
    decoder = EventDecoder()
    fields = {
        "type": "BlockStored",
        "block_hashes": [1],
        "parent_block_hash": None,
        "token_ids": [1, 2],
        "block_size": 2,
    }
    window = fields | {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
    full = fields | {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    removed = {"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1}
    assert len(decode(window, full, removed, decoder=decoder)) == 1
    assert decoder.counters.other_groups == 2


@pytest.mark.parametrize(
    "event",
    [
        ["BlockStored", [1], None, [[1, 2], [3, 4]], 2],
        ["BlockStored", [1], None, [2**31], 1],
        ["BlockStored", [1], None, [1.5], 1],
        ["BlockStored", [1], None, b"1234", 1],
        ["BlockStored", [1.5], None, [1], 1],
        ["BlockStored", [1], "x", [1], 1],
        ["BlockStored", [1], None, [1], 0],
        ["BlockStored", [1], None, [1], 1, None, 7],
        ["BlockStored", 1],
        {"block_hashes": [1]},
        [],
        3,
        None,
    ],
)
def test_one_malformed_event_does_not_cost_the_others(event: Any) -> None:
    decoder = EventDecoder()
    lost, stored = decode(event, STORED, decoder=decoder)
    is_store = isinstance(event, list) and event[:1] == ["BlockStored"]
    assert lost == EventsLost(removals=not is_store)
    assert isinstance(stored, BlockStored)
    assert decoder.counters.malformed_events == 1


def test_unknown_events_are_counted() -> None:
    decoder = EventDecoder()
    assert decode(["BlockPinned", [1]], decoder=decoder) == [EventsLost(removals=False)]
    assert decoder.counters.unknown_events == 1


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode(3), msgspec.msgpack.encode([1.0])])
def test_what_is_no_batch_is_an_error(payload: bytes) -> None:
    with pytest.raises(BatchError):
        EventDecoder().decode(payload)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
TAGS = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(JSON | st.builds(lambda tag, rest: [tag, *rest], TAGS, st.lists(JSON, max_size=8)), max_size=4)
)
def test_any_batch_decodes(events: list[Any]) -> None:
    decoder = EventDecoder()
    decoded = decode(*events, decoder=decoder)
    counters = decoder.counters
    assert len(decoded) + counters.other_groups == len(events)
    lost = sum(isinstance(event, EventsLost) for event in decoded)
    assert lost == counters.unknown_events + counters.malformed_events
