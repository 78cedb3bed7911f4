"""msgpack batches of SGLang and vLLM -> engine events. One it cannot use is counted and said, not fatal."""

from array import array
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EngineNews,
    EventsLost,
)
from kvcompass.errors import KVCompassError

_STORED_FIELDS: Final = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "extra",
)
"""In the order of the array form."""
_ABSENT: Final = (None,) * len(_STORED_FIELDS)
"""What a short array leaves out."""
_WHOLE_PREFIX_KINDS: Final = ("full_attention", "mla_attention")
"""Caches of vLLM's hybrid models that hold every token; others (windows, states) hold no prefix."""


class BatchError(KVCompassError):
    """A payload is not a batch of events at all."""


@dataclass(slots=True)
class DecoderCounters:
    """Events that were left out. Monotonic."""

    unknown_events: int = 0
    """Of a kind this decoder does not know; taken to remove nothing."""
    malformed_events: int = 0
    other_groups: int = 0
    """About a cache that holds no whole prefixes."""


class EventDecoder:
    """Decodes the batches of one engine, array form and map form alike."""

    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder()
        self._other_groups: set[int] = set()
        """Cache groups seen to hold no whole prefixes; their removals do not say so themselves."""
        self.counters = DecoderCounters()

    def decode(self, payload: bytes) -> list[EngineNews]:
        """Return a batch's events, in order; `EventsLost` in the place of one that cannot be understood.

        Raises:
            BatchError: The payload is not msgpack, or not `[time, events, ...]`.
        """
        try:
            batch = self._decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise BatchError(f"not msgpack: {error}", field="payload") from error
        except RecursionError as error:
            raise BatchError("nested too deeply", field="payload") from error
        if isinstance(batch, dict):
            raw = batch.get("events")
        else:
            raw = batch[1] if isinstance(batch, list) and len(batch) > 1 else None
        if not isinstance(raw, list):
            raise BatchError("a batch is [time, [event, ...], rank]", field="payload")
        events: list[EngineNews] = []
        for item in raw:
            try:
                event = self._event(item)
            except (TypeError, ValueError, OverflowError, KeyError, IndexError):
                self.counters.malformed_events += 1
                event = EventsLost(removals=not _is_store(item))
            if event is not None:
                events.append(event)
        return events

    def _event(self, item: Any) -> EngineNews | None:
        fields = None
        if isinstance(item, dict):
            fields = item
            kind = item["type"]
        else:
            kind = item[0]
        if kind == "BlockStored":
            if fields is not None and self._of_other_group(fields):
                return None
            names = (*item[1:8], *_ABSENT) if fields is None else map(fields.get, _STORED_FIELDS)
            hashes, parent, tokens, block_size, adapter, medium, extra, *_ = names
            return BlockStored(
                hashes=_hashes(hashes),
                parent=None if parent is None else _hashes([parent])[0],
                tokens=_tokens(tokens),
                block_size=_block_size(block_size),
                medium=_medium(medium),
                scope=_scope(adapter, extra if fields is None else fields),
            )
        if kind == "BlockRemoved":
            if fields is not None:
                if self._of_other_group(fields):
                    return None
                hashes, medium = fields["block_hashes"], fields.get("medium")
                return BlockRemoved(_hashes(hashes), _medium(medium), _scope(fields.get("lora_id"), fields))
            return BlockRemoved(_hashes(item[1]), _medium(item[2]) if len(item) > 2 else None)
        if kind == "AllBlocksCleared":
            return AllBlocksCleared()
        self.counters.unknown_events += 1
        return EventsLost(removals=False)

    def _of_other_group(self, fields: dict[str, Any]) -> bool:
        group = fields.get("group_idx")
        kind = fields.get("kv_cache_spec_kind")
        other = group in self._other_groups if kind is None else kind not in _WHOLE_PREFIX_KINDS
        if other:
            self.counters.other_groups += 1
            if isinstance(group, int):
                self._other_groups.add(group)
        return other


def _is_store(item: Any) -> bool:
    kind = (
        item.get("type") if isinstance(item, dict) else item[0] if isinstance(item, list) and item else None
    )
    return kind == "BlockStored"


def _tokens(values: Any) -> npt.NDArray[np.int32]:
    if not isinstance(values, list):
        raise TypeError("token ids are a list")
    return np.frombuffer(array("i", values), dtype=np.int32)


def _hashes(values: Any) -> tuple[BlockHash, ...]:
    if not isinstance(values, list) or not all(type(value) in (int, bytes) for value in values):
        raise TypeError("a block hash is an integer or bytes")
    return tuple(values)


def _block_size(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError("a block size is a positive integer")
    return value


def _medium(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("a medium is a name")
    return value


def _scope(adapter: Any, more: Any) -> str:
    """Return what separates an event's blocks from equal tokens: the bare salt, or a text no salt is.

    `more` is the map form's fields, or what follows the medium in the array form: `{"cache_salt": ...}` in
    salted SGLang, the adapter's name in vLLM.
    """
    if adapter is None and more is None:
        return ""
    salt = None
    if isinstance(more, dict):
        salt = more.get("cache_salt")
        adapter = more.get("lora_name", adapter) if adapter is None else adapter
        if salt is None and any(key is not None for key in more.get("extra_keys") or ()):
            salt = "\0"
    elif isinstance(more, str):
        adapter = more
    return str(salt or "") if adapter is None else f"adapter:{adapter}\0{salt or ''}"
