"""Large frames are decoded to the same events as small ones, and take little memory whatever is in them."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from kvcompass.engine_events import BlockRemoved, BlockStored, EventsLost
from services.worker_agent import event_frames
from services.worker_agent.event_decoder import BatchError, EventDecoder
from services.worker_agent.event_frames import rank_of

MEBI = 1 << 20


def batch(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 3])


def shown(payload: bytes) -> list[Any]:
    """A batch's events, comparable."""
    return [
        (event.hashes, event.parent, event.tokens.tolist(), event.medium, event.scope)
        if isinstance(event, BlockStored)
        else event
        for event in EventDecoder().decode(payload)
    ]


EVENTS: list[Any] = [
    ["BlockStored", [1, 2], None, [5, 6, 7, 8], 2, None, "GPU"],
    ["BlockStored", [3], 2, [9, 10], 2, None, "GPU"],
    ["BlockStored", [b"\1" * 32], 3, [[5, 6], [6, 7]], 2, None, "GPU"],
    {
        "type": "BlockStored",
        "block_hashes": [7],
        "parent_block_hash": None,
        "token_ids": [1],
        "block_size": 1,
    },
    ["BlockRemoved", [1, b"\2" * 8], "GPU"],
    ["BlockStored", [1, 2, 3], None, [5, 6, 7], 2.5, None, "GPU"],
    ["Unheard", 1],
    ["AllBlocksCleared"],
]


@pytest.mark.parametrize("form", [list, dict], ids=["array", "map"])
@pytest.mark.parametrize("small", [0, 8, 30])
def test_what_is_read_piece_by_piece_is_what_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, small: int, form: type
) -> None:
    payload = batch(*EVENTS) if form is list else msgspec.msgpack.encode({"ts": 1.0, "events": EVENTS})
    expected = shown(payload)
    monkeypatch.setattr(event_frames, "_SMALL_BYTES", small)
    got = shown(payload)
    if small == 0:  # not even a number is short: only kinds and lists of blocks and tokens are read
        assert len(got) == len(expected) and got[-1] == expected[-1]
    else:
        assert got == expected


def test_the_largest_eviction_is_read() -> None:
    names = list(range(1 << 60, (1 << 60) + 300_000))
    (event,) = EventDecoder().decode(batch(["BlockRemoved", names, "GPU"]))
    assert isinstance(event, BlockRemoved) and list(event.hashes) == names


@pytest.mark.parametrize(
    "payload",
    [
        b"\x93\x01\xdd" + MEBI.to_bytes(4, "big") + b"\x90" * MEBI + b"\x00",
        b"\x93\x01\x91\xdd" + MEBI.to_bytes(4, "big") + b"\x90" * MEBI + b"\x00",
        b"\x93\x01\x91\x92\xacBlockRemoved\xdd" + MEBI.to_bytes(4, "big") + b"\x90" * MEBI + b"\x00",
        b"\x94\x01\x90\x00\xdd" + MEBI.to_bytes(4, "big") + b"\x90" * MEBI,
        b"\x82\xa6events\x90\xa1x\xdd" + MEBI.to_bytes(4, "big") + b"\x80" * MEBI,
    ],
    ids=["events", "fields", "names", "more", "map"],
)
def test_empty_arrays_take_little_memory(payload: bytes) -> None:
    tracemalloc.start()
    try:
        events = EventDecoder().decode(payload)
    except BatchError:
        events = []
    rank_of(payload)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(isinstance(event, EventsLost) for event in events)
    assert most < 8 * len(payload)


def test_the_rank_is_the_third_of_a_batch() -> None:
    assert rank_of(batch()) == 3
    others: list[Any] = [[1.0, []], [1.0, [], "x"], [1.0, [], True], {"events": []}, 5]
    for other in others:
        assert rank_of(msgspec.msgpack.encode(other)) is None
    assert rank_of(b"") is None
    assert rank_of(b"\x91" * 100_000) is None
