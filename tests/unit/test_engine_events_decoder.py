"""Forms of event that real engines use beyond the golden bytes, and events that are none."""

from typing import Any

import msgspec
import pytest

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineNews,
    EventsLost,
)
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
    assert (event.hashes, event.parent) == ((0x0102, 0x0304), 0)
    assert (event.tokens.tolist(), event.block_size) == ([1, 2, 3, 4], 2)
    assert (event.medium, event.scope) == ("CPU", "tenant")
    removed, cleared = decode(
        {"type": "BlockRemoved", "block_hashes": [1], "medium": None}, {"type": "AllBlocksCleared"}
    )
    assert removed == BlockRemoved((1,), None)
    assert isinstance(cleared, AllBlocksCleared)


def test_short_and_long_arrays() -> None:
    decoder = EventDecoder()
    assert only_store(STORED[:5]).medium is None
    (event,) = decode([*STORED, None, None, 0, "full_attention", None, "more", 3], decoder=decoder)
    assert isinstance(event, BlockStored) and event.medium == "GPU"
    assert decoder.counters.unknown_fields == 1
    assert decode(["BlockRemoved", [1]]) == [BlockRemoved((1,), None)]


def test_unknown_fields_are_counted_and_passed_over() -> None:
    decoder = EventDecoder()
    fields = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}
    assert decode(fields, fields | {"reason": "age"}, decoder=decoder) == [BlockRemoved((1,), "GPU")] * 2
    assert decoder.counters.unknown_fields == 1


def test_a_name_of_bytes_is_the_integer_of_its_last_eight() -> None:
    whole = bytes(range(32))
    event = only_store(["BlockStored", [whole], None, [1], 1])
    assert event.hashes == (int.from_bytes(whole[24:], "big"),)
    assert decode(["BlockRemoved", [event.hashes[0], whole]]) == [BlockRemoved(event.hashes * 2, None)]


def block(name: int, parent: int | None, first: int, medium: str = "GPU", **more: Any) -> list[Any]:
    """A block of two tokens by itself, as SGLang up to 0.5.16 sends it."""
    return ["BlockStored", [name], parent, [first, first + 1], 2, None, medium, *more.values()]


def test_blocks_told_one_by_one_are_one_event() -> None:
    chain = [block(7, None, 1), block(8, 7, 3), block(9, 8, 5)]
    event = only_store(*chain)
    assert (event.hashes, event.parent) == ((7, 8, 9), None)
    assert event.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    removals = [["BlockRemoved", [name], "GPU"] for name in (7, 8)]
    assert decode(*removals, ["BlockRemoved", [9], "CPU_PINNED"]) == [
        BlockRemoved((7, 8), "GPU"),
        BlockRemoved((9,), "CPU_PINNED"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        block(8, None, 3),
        block(8, 6, 3),
        block(8, 7, 3, "CPU_PINNED"),
        block(8, 7, 3, metadata={"cache_salt": "s"}),
        ["BlockStored", [8], 7, [3], 1, None, "GPU"],
        ["BlockStored", [8], 7, [3, 4], 2, 1, "GPU"],
        ["BlockStored", [8], 7, [3, 4], 2],
        ["BlockStored", [8], 7, [3, 4, 5], 2, None, "GPU"],
        ["BlockRemoved", [7], "GPU"],
    ],
)
def test_other_neighbours_stay_apart(other: list[Any]) -> None:
    assert len(decode(block(7, None, 1), other)) == 2


def test_a_malformed_block_costs_its_chain_no_other() -> None:
    decoder = EventDecoder()
    wrong = ["BlockStored", [8], 7, [3, 2**31], 2, None, "GPU"]
    first, lost, last = decode(block(7, None, 1), wrong, block(9, 8, 5), decoder=decoder)
    assert isinstance(first, BlockStored) and isinstance(last, BlockStored)
    assert (first.hashes, last.hashes, lost) == ((7,), (9,), EventsLost(removals=False))
    assert decoder.counters.malformed_events == 1


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


FIELDS = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": [1, 2],
    "block_size": 2,
}
FULL = FIELDS | {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
WINDOW = FIELDS | {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
UNTOLD = FIELDS | {"group_idx": 1}


def removed(group: int | str | None) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [1], "group_idx": group}


def test_caches_without_whole_prefixes_are_left_out() -> None:
    decoder = EventDecoder()
    assert len(decode(WINDOW, FULL, removed(1), UNTOLD, decoder=decoder)) == 1
    assert decoder.counters.other_groups == 3
    assert decode(removed(0), decoder=decoder) == [BlockRemoved((1,), None)]


def test_each_of_the_neighbours_is_counted() -> None:
    decoder = EventDecoder()
    assert decode(*[["BlockRemoved", [name], "GPU", 2] for name in range(3)], decoder=decoder) == []
    assert decoder.counters.other_groups == 3
    decode(*[removed(None) | {"more": 1} for _ in range(2)], decoder=decoder)
    assert decoder.counters.unknown_fields == 2


def test_nothing_is_removed_of_a_group_that_stored_nothing() -> None:
    """Groups share names: what is told to leave one is still in the other."""
    assert len(decode(FULL, removed(1), removed("another"))) == 1


def test_a_group_that_turns_out_to_be_a_window_takes_back_what_it_stored() -> None:
    decoder = EventDecoder()
    stored, forget = decode(UNTOLD, WINDOW, WINDOW, UNTOLD, decoder=decoder)
    assert isinstance(stored, BlockStored)
    assert forget == EventsLost(removals=True)
    assert decoder.counters.late_groups == 1
    assert decoder.counters.other_groups == 3


def test_there_are_only_so_many_groups() -> None:
    decoder = EventDecoder()
    decode(*[FIELDS | {"group_idx": number} for number in range(1_000)], decoder=decoder)
    assert decoder.counters.malformed_events == 1_000 - 256


@pytest.mark.parametrize(
    ("where", "medium"),
    [
        ({"medium": "CPU", "locality": "LOCAL"}, "CPU"),
        ({"medium": "CPU", "locality": "REMOTE"}, "CPU elsewhere"),
        ({"medium": "CPU", "ownership": "second"}, "CPU elsewhere"),
    ],
)
def test_only_the_engines_own_memory_is_a_medium_by_its_name(where: dict[str, Any], medium: str) -> None:
    assert only_store(FIELDS | where).medium == medium


def test_a_store_without_tokens_is_a_copy() -> None:
    fields = FIELDS | {"token_ids": [], "block_size": 0, "medium": "CPU"}
    assert decode(fields) == [BlocksCopied((1,), "CPU")]


@pytest.mark.parametrize(
    ("keys", "scopes"),
    [
        (None, [("", 3)]),
        ([None, None, None], [("", 3)]),
        ([[], None, []], [("", 3)]),
        ([["salt"], None, None], [("\0", 3)]),
        ([None, [["image", 1]], None], [("", 1), ("\0", 2)]),
        ([None, None, ["embedding"]], [("", 2), ("\0", 1)]),
        ([None, ["not one a block"]], [("\0", 3)]),
    ],
)
def test_blocks_that_more_than_tokens_went_into_are_another_scope(
    keys: Any, scopes: list[tuple[str, int]]
) -> None:
    fields = FIELDS | {"block_hashes": [1, 2, 3], "token_ids": [1, 2, 3, 4, 5, 6], "extra_keys": keys}
    events = decode(fields)
    assert [(event.scope, len(event.hashes)) for event in events if isinstance(event, BlockStored)] == scopes
    assert [event.parent for event in events if isinstance(event, BlockStored)] == [
        None,
        *[scopes[0][1] for _ in scopes[1:]],
    ]


def test_pairs_are_known_by_their_first_tokens() -> None:
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    assert only_store(["BlockStored", [1], None, pairs, 4]).tokens.tolist() == [1, 2, 3, 4]
    assert only_store(FIELDS | {"token_ids": pairs, "block_size": 4}).tokens.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "event",
    [
        ["BlockStored", [1], None, [[1, 2], [3, 4]], 2],
        ["BlockStored", [1], None, [[1, 2], [2]], 2],
        ["BlockStored", [1], None, [[1, 2], 3], 2],
        ["BlockStored", [1], None, [[]], 1],
        ["BlockStored", [1], None, [["a", "b"]], 1],
        ["BlockStored", [b""], None, [1], 1],
        ["BlockStored", [True], None, [1], 1],
        ["BlockStored", [1], None, [], 1, None, None, None, 7],
        ["BlockStored", [1], None, [1], 1, None, None, None, None, 1.5],
        ["BlockStored", [1], None, [1], 1, None, None, None, None, 0, 7],
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


def test_removals_of_one_medium_are_one_event_in_every_form() -> None:
    gone = [["BlockRemoved", [n], "GPU", 0] for n in (3, 2, 1)]
    maps = [
        {"type": "BlockRemoved", "block_hashes": [n], "medium": "GPU", "group_idx": None} for n in (3, 2, 1)
    ]
    decoder = EventDecoder()
    decode(FIELDS | {"group_idx": 0}, decoder=decoder)
    assert decode(*gone, decoder=decoder) == decode(*maps) == [BlockRemoved((3, 2, 1), "GPU")]
    maps[1]["medium"] = "CPU"
    assert [event.hashes for event in decode(*maps)] == [(3,), (2,), (1,)]  # type: ignore[union-attr]


def test_the_groups_of_another_process_are_learned_anew() -> None:
    full, window = (
        {"group_idx": 0, "kv_cache_spec_kind": kind} for kind in ("full_attention", "sliding_window")
    )
    for forgets, expected in ((False, [EventsLost(removals=True)]), (True, [])):
        decoder = EventDecoder()
        decode(FIELDS | full, decoder=decoder)
        if forgets:
            decoder.forget_groups()
        assert decode(FIELDS | window, decoder=decoder) == expected
