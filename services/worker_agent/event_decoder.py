"""msgpack batches of SGLang and vLLM -> engine events. One it cannot use is counted and said, not fatal."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineNews,
    EventsLost,
)
from kvcompass.errors import KVCompassError
from services.worker_agent.cache_groups import Admission, CacheGroups
from services.worker_agent.event_chains import neighbours_joined
from services.worker_agent.event_fields import (
    Fields,
    block_size_of,
    fields_of,
    hashes_of,
    is_store,
    keyed_scope,
    medium_of,
    parent_of,
    plain_blocks,
    scope_of,
    tokens_of,
)
from services.worker_agent.event_frames import raw_events

_MALFORMED: Final = (TypeError, ValueError, OverflowError, KeyError, IndexError)
_STORES_LOST: Final = EventsLost(removals=False)
_ANYTHING_LOST: Final = EventsLost(removals=True)


class BatchError(KVCompassError):
    """A payload is not a batch of events at all."""


@dataclass(slots=True)
class DecoderCounters:
    """Events that were not as expected. Monotonic."""

    unknown_events: int = 0
    """Of a kind this decoder does not know; taken to remove nothing."""
    malformed_events: int = 0
    unknown_fields: int = 0
    """Events taken in that have fields this decoder does not know, and so may mean something else."""
    other_groups: int = 0
    """About a cache that holds no whole prefixes."""
    late_groups: int = 0
    """Cache groups that turned out to hold no whole prefixes after something of them was taken in."""


class EventDecoder:
    """Decodes the batches of one engine, array form and map form alike, one after the other."""

    def __init__(self) -> None:
        self._groups = CacheGroups()
        self.counters = DecoderCounters()

    def forget_groups(self) -> None:
        """Another process of the engine speaks from here on, whose groups may be others."""
        self._groups = CacheGroups()

    def decode(self, payload: bytes) -> list[EngineNews]:
        """Return a batch's events, in order; `EventsLost` in the place of one that cannot be understood.

        Blocks told one by one that follow one another are one event.

        Raises:
            BatchError: The payload is not msgpack, or not `[time, events, ...]`.
        """
        news: list[EngineNews] = []
        place = 0
        for item, count in neighbours_joined(self._items(payload)):
            try:
                news += self._news(item, count)
            except _MALFORMED:
                again = self._items(payload) if count > 1 else iter([item])
                first = place if count > 1 else 0
                for piece in islice(again, first, first + count):
                    news += self._news_of_any(piece)
            place += count
        return news

    def _items(self, payload: bytes) -> Iterator[Any]:
        """The raw events of a batch."""
        try:
            items = raw_events(payload)
        except msgspec.DecodeError as error:
            raise BatchError(f"not msgpack: {error}", field="payload") from error
        except RecursionError as error:
            raise BatchError("nested too deeply", field="payload") from error
        except TypeError as error:
            raise BatchError(f"a map's keys are no names: {error}", field="payload") from error
        if items is None:
            raise BatchError("a batch is [time, [event, ...], rank]", field="payload")
        return items

    def _news_of_any(self, item: Any) -> tuple[EngineNews, ...]:
        """One raw event, whatever it is."""
        try:
            return self._news(item, 1)
        except _MALFORMED:
            self.counters.malformed_events += 1
            return (_STORES_LOST if is_store(item) else _ANYTHING_LOST,)

    def _news(self, item: Any, count: int) -> tuple[EngineNews, ...]:
        """What `count` raw events say that were joined to one."""
        fields, has_more = fields_of(item)
        kind = fields["type"]
        if kind == "BlockStored":
            news = self._stored(fields, count)
        elif kind == "BlockRemoved":
            news = self._removed(fields, count)
        elif kind == "AllBlocksCleared":
            news = (AllBlocksCleared(),)
        else:
            self.counters.unknown_events += count
            return (_STORES_LOST,)
        self.counters.unknown_fields += count * has_more
        return news

    def _stored(self, fields: Fields, count: int) -> tuple[EngineNews, ...]:
        admission = self._groups.of_store(fields.get("group_idx"), fields.get("kv_cache_spec_kind"))
        if admission is not Admission.TAKEN:
            self.counters.other_groups += count
            if admission is Admission.LEFT:
                return ()
            self.counters.late_groups += 1
            return (_ANYTHING_LOST,)
        hashes, medium, scope = hashes_of(fields["block_hashes"]), medium_of(fields), scope_of(fields)
        parent = parent_of(fields["parent_block_hash"])
        plain = plain_blocks(fields.get("extra_keys"), len(hashes))
        if hashes and fields["token_ids"] == []:
            return (BlocksCopied(hashes, medium, scope if plain else keyed_scope(scope)),)
        block_size = block_size_of(fields["block_size"])
        tokens = tokens_of(fields["token_ids"])
        if plain == len(hashes):
            return (BlockStored(hashes, parent, tokens, block_size, medium, scope),)
        cut = plain * block_size
        keyed = BlockStored(
            hashes[plain:],
            hashes[plain - 1] if plain else parent,
            tokens[cut:],
            block_size,
            medium,
            keyed_scope(scope),
        )
        if not plain:
            return (keyed,)
        return (BlockStored(hashes[:plain], parent, tokens[:cut], block_size, medium, scope), keyed)

    def _removed(self, fields: Fields, count: int) -> tuple[EngineNews, ...]:
        if self._groups.of_removal(fields.get("group_idx")) is not Admission.TAKEN:
            self.counters.other_groups += count
            return ()
        return (BlockRemoved(hashes_of(fields["block_hashes"]), medium_of(fields)),)
