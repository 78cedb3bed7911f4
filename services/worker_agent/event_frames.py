"""The frame of a batch, `[time, events, rank]` or a map of these: its events one by one, and its rank.

Nested empty arrays take 75 times their size in memory once decoded. So of a large frame only what an event
can be is decoded, field by field, and what is in a field that no event has is skipped.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

_SMALL_BYTES: Final = 256 << 10
"""What is shorter is decoded as it is: whatever is in it, that takes 20 MB, and not for long."""
_EVENT_BYTES: Final = 8
"""Of the shortest event, less than half of `["BlockRemoved", []]`."""
_FIELDS: Final = 32
"""Of an event, more than twice what any engine tells."""
_LONGEST: Final = 1 << 21
"""Blocks of an event, and tokens: more than an engine holds, or a prompt has."""
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, TypeError, UnicodeDecodeError)


class _ListFrame(msgspec.Struct, array_like=True):
    time: msgspec.Raw
    events: msgspec.Raw


class _MapFrame(msgspec.Struct):
    events: msgspec.Raw


class _RankedFrame(msgspec.Struct, array_like=True):
    time: msgspec.Raw
    events: msgspec.Raw
    rank: int | None = None


_ANY: Final = msgspec.msgpack.Decoder()
_LIST_FRAME: Final = msgspec.msgpack.Decoder(_ListFrame)
_MAP_FRAME: Final = msgspec.msgpack.Decoder(_MapFrame)
_RANKED_FRAME: Final = msgspec.msgpack.Decoder(_RankedFrame)
_PIECES: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NAMED_PIECES: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.msgpack.Decoder(str)
_NAMES: Final = (msgspec.msgpack.Decoder(list[int | bytes]),)
_TOKENS: Final = (msgspec.msgpack.Decoder(list[int]), msgspec.msgpack.Decoder(list[tuple[int, int]]))
_LISTS: Final[dict[str | int, tuple[msgspec.msgpack.Decoder[Any], ...]]] = {
    1: _NAMES,
    "block_hashes": _NAMES,
    3: _TOKENS,
    "token_ids": _TOKENS,
}
"""What may be long of an event, by its place in the array form and its name in the map form."""


def rank_of(payload: bytes) -> int | None:
    """Return the data-parallel rank that a batch says it is of, if it does."""
    try:
        return _RANKED_FRAME.decode(payload).rank
    except _UNREADABLE:
        return None


def raw_events(payload: bytes) -> Iterator[Any] | None:
    """Return the events of a batch, as msgpack has them; None where that is no list.

    One of a large frame that cannot be an event is `[kind]`, or `[None]`.

    Errors: msgspec.DecodeError, RecursionError, TypeError.
    """
    if len(payload) <= _SMALL_BYTES:
        batch = _ANY.decode(payload)
        if isinstance(batch, dict):
            items = batch.get("events")
        else:
            items = batch[1] if isinstance(batch, list) and len(batch) > 1 else None
        return iter(items) if isinstance(items, list) else None
    events = bytes((_LIST_FRAME if _is_list(payload) else _MAP_FRAME).decode(payload).events)
    if not _is_list(events) or _length(events) * _EVENT_BYTES > len(events):
        return None
    return map(_event, _PIECES.decode(events))


def _event(raw: msgspec.Raw) -> Any:
    """One event, or its kind alone where it is none."""
    kind = None
    data = bytes(raw)
    try:
        if len(data) <= _SMALL_BYTES:
            return _ANY.decode(data)
        if _length(data) > _FIELDS:
            return [kind]
        if _is_list(data):
            fields = _PIECES.decode(data)
            kind = _TEXT.decode(fields[0])
            return [kind, *(_field(place, value) for place, value in enumerate(fields) if place)]
        named = _NAMED_PIECES.decode(data)
        kind = _TEXT.decode(named.pop("type"))
        return {"type": kind} | {name: _field(name, value) for name, value in named.items()}
    except (*_UNREADABLE, KeyError, IndexError):
        return [kind]


def _field(name: str | int, raw: msgspec.Raw) -> Any:
    data = bytes(raw)
    if len(data) <= _SMALL_BYTES:
        return _ANY.decode(data)
    if not _is_list(data) or _length(data) > _LONGEST:
        raise TypeError("no field of an event is so long")
    for decoder in _LISTS.get(name, ()):
        with suppress(msgspec.ValidationError):
            return decoder.decode(data)
    raise TypeError("no field of an event is so long")


def _is_list(data: bytes) -> bool:
    return 0x90 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD)


def _length(data: bytes) -> int:
    """Elements of an array or a map, by its head."""
    head = data[0]
    if head in (0xDC, 0xDE):
        return int.from_bytes(data[1:3], "big")
    if head in (0xDD, 0xDF):
        return int.from_bytes(data[1:5], "big")
    return head & 0x0F
