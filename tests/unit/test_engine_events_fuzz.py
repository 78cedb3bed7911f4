"""Whatever bytes come, a decoder says BatchError or returns events, and takes memory by what came."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineNews,
    EventsLost,
)
from services.worker_agent.event_decoder import BatchError, EventDecoder
from tests.models.vllm_events import VllmEvent, encode
from tests.unit.test_holdings_twin import stored

GOLDEN = Path(__file__).parent.parent / "fixtures" / "golden"
PAYLOADS = [
    bytes.fromhex(line["payload_hex"])
    for name in ("sglang_forms.json", "vllm_forms.json", "hiradix_0.5.11.json")
    for line in json.loads((GOLDEN / name).read_text("utf-8"))
    if line["payload_hex"] is not None
]

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
NAMES = st.sampled_from(
    ["block_hashes", "parent_block_hash", "token_ids", "block_size", "medium", "group_idx", "extra_keys"]
)
SOME = JSON | st.lists(st.integers(0, 9), max_size=4) | st.integers(1, 2)
ARRAYS = st.builds(lambda tag, rest: [tag, *rest], TAGS, st.lists(SOME, max_size=13))
MAPS = st.builds(lambda tag, fields: {"type": tag} | fields, TAGS, st.dictionaries(NAMES, SOME, max_size=7))


@settings(max_examples=250, deadline=None)
@given(st.lists(JSON | ARRAYS | MAPS, max_size=4))
def test_any_batch_decodes(events: list[Any]) -> None:
    """Every event is counted, or is among what is returned."""
    decoder = EventDecoder()
    decoded = decoder.decode(msgspec.msgpack.encode([1.0, events, 0]))
    counters = decoder.counters
    lost = sum(isinstance(event, EventsLost) for event in decoded)
    assert lost == counters.unknown_events + counters.malformed_events + counters.late_groups
    assert sum(map(pieces, decoded)) >= len(events) - counters.other_groups - empty(events)


def pieces(event: EngineNews) -> int:
    """How many events of a batch an event may stand for."""
    return max(1, len(event.hashes)) if isinstance(event, BlockStored | BlockRemoved) else 1


def empty(events: list[Any]) -> int:
    """Events without blocks, which may be joined to their neighbours."""
    return sum(isinstance(event, list) and event[1:2] == [[]] for event in events)


def decoded(payload: bytes) -> list[EngineNews] | None:
    try:
        return EventDecoder().decode(payload)
    except BatchError:
        return None


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_no_batch(payload: bytes) -> None:
    decoded(payload)
    decoded(b"\x93\xcb" + bytes(8) + payload)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PAYLOADS), st.data())
def test_damaged_batches_decode_or_are_no_batch(payload: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(payload)))
        end = data.draw(st.integers(place, min(place + 3, len(payload))))
        payload = payload[:place] + data.draw(st.binary(max_size=3)) + payload[end:]
    decoded(payload)


LENGTHS = [b"\xdd" + struct.pack(">I", size) for size in (2**32 - 1, 2**31, 10**8, 10**6)]
HOSTILE = {
    "a list": LENGTHS[0],
    "lists in lists": LENGTHS[2] * 200,
    "a batch": b"\x93\xcb" + bytes(8) + LENGTHS[0],
    "an event": b"\x93\xcb" + bytes(8) + b"\x91" + LENGTHS[1],
    "hashes": b"\x93\xcb" + bytes(8) + b"\x91\x97\xabBlockStored" + LENGTHS[2],
    "tokens": b"\x93\xcb" + bytes(8) + b"\x91\x97\xabBlockStored\x91\x01\xc0" + LENGTHS[3],
    "a map": b"\xdf" + b"\xff" * 4,
    "bytes": b"\xc6" + b"\xff" * 4,
    "text": b"\xdb" + b"\xff" * 4,
    "an extension": b"\xc9" + b"\xff" * 4 + b"\x01",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_length_that_is_announced_takes_no_memory(what: str) -> None:
    payload = HOSTILE[what]
    decoded(payload)
    tracemalloc.start()
    try:
        assert decoded(payload) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("item", [[], {}, None, ["BlockStored"], ["BlockRemoved", []], {"type": "x"}])
def test_memory_goes_by_the_bytes_that_came(item: Any) -> None:
    """100 bytes a byte at most: a byte can be an empty map."""
    payload = msgspec.msgpack.encode([1.0, [item] * 20_000, 0])
    tracemalloc.start()
    try:
        decoded(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(payload) + 100_000


HASHES = st.integers(0, 2**64 - 1) | st.integers(0, 9)
BLOCKS = st.integers(1, 4)
MEDIA = st.sampled_from(["GPU", "CPU", "STORAGE"])
SCOPES = st.sampled_from(["", "\0"])


@st.composite
def vllm_events(draw: st.DrawFn) -> VllmEvent:
    names = draw(st.lists(HASHES, min_size=1, max_size=4, unique=True))
    match draw(st.sampled_from(["store", "copy", "remove", "clear"])):
        case "store":
            tokens = draw(
                st.lists(st.integers(0, 2**31 - 1), min_size=2 * len(names), max_size=2 * len(names))
            )
            return stored(names, draw(st.none() | HASHES), tokens, draw(MEDIA), draw(SCOPES))
        case "copy":
            return BlocksCopied(tuple(names), draw(MEDIA))
        case "remove":
            return BlockRemoved(tuple(names), draw(MEDIA))
        case _:
            return AllBlocksCleared()


Row = tuple[Any, ...]


def by_blocks(events: list[Any]) -> list[Row]:
    """One row a block: how blocks are dealt to events is the encoder's affair."""
    rows: list[Row] = []
    for event in events:
        match event:
            case BlockStored():
                parents: tuple[BlockHash | None, ...] = (event.parent, *event.hashes)
                pages = event.tokens.reshape(-1, event.block_size).tolist()
                more = (event.block_size, event.medium, event.scope)
                rows += [(*row, *more) for row in zip(parents, event.hashes, pages, strict=False)]
            case BlocksCopied() | BlockRemoved():
                rows += [(type(event).__name__, name, event.medium) for name in event.hashes]
            case _:
                rows.append((type(event).__name__,))
    return rows


@settings(max_examples=150, deadline=None)
@given(st.lists(vllm_events(), max_size=8), st.booleans(), st.booleans(), st.none() | st.just(0))
def test_what_vllm_writes_is_read(
    events: list[VllmEvent], as_maps: bool, names_as_bytes: bool, group: int | None
) -> None:
    decoder = EventDecoder()
    if group is not None:
        decoder.decode(
            encode([stored([1], None, [1], "GPU")], as_maps=as_maps, names_as_bytes=False, group=0)
        )
    payload = encode(events, as_maps=as_maps, names_as_bytes=names_as_bytes, group=group)
    assert by_blocks(decoder.decode(payload)) == by_blocks(events)
    counters = decoder.counters
    assert {getattr(counters, name) for name in counters.__slots__} == {0}


SINGLE = st.builds(
    lambda name, parent, tokens, medium, more: [
        "BlockStored",
        [name],
        parent,
        tokens,
        2,
        None,
        medium,
        *more,
    ],
    st.integers(0, 5),
    st.none() | st.integers(0, 5),
    st.lists(st.integers(0, 3), min_size=2, max_size=2),
    st.sampled_from(["GPU", "CPU_PINNED"]),
    st.sampled_from([[], [{"cache_salt": "s"}], ["adapter"]]),
) | st.builds(
    lambda names, medium: ["BlockRemoved", names, medium], st.lists(st.integers(0, 5), max_size=2), MEDIA
)


@settings(max_examples=250, deadline=None)
@given(st.lists(SINGLE, max_size=10))
def test_joining_neighbours_changes_nothing(items: list[list[Any]]) -> None:
    together = EventDecoder().decode(msgspec.msgpack.encode([1.0, items, 0]))
    apart: list[EngineNews] = []
    for item in items:
        apart += EventDecoder().decode(msgspec.msgpack.encode([1.0, [item], 0]))
    assert by_blocks(together) == by_blocks(apart)
