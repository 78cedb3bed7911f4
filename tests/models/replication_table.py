"""A shard's writer and view as dictionaries: obviously right, and as slow as they look."""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import ProtocolError
from kvcompass.index import ApplyResult, Patches
from kvcompass.keys.digest import holdings_digest

_GROUP = struct.Struct("<QBBB")
_CLEAR = 2**64 - 1

Fields = dict[tuple[int, int, int], int]
"""(key, table, slot) -> tier, never 0."""


def _digest(fields: Fields) -> int:
    return zlib.crc32(repr(sorted(fields.items())).encode())


def _encoded(fields: Fields) -> bytes:
    return b"".join(_GROUP.pack(*place, tier) for place, tier in fields.items())


def _put(fields: Fields, key: int, table: int, slot: int, tier: int) -> None:
    if key == _CLEAR:
        for place in [place for place in fields if place[1:] == (table, slot)]:
            del fields[place]
    elif tier:
        fields[key, table, slot] = tier
    else:
        fields.pop((key, table, slot), None)


@dataclass
class FrozenDict:
    """A snapshot that takes some parts to copy."""

    digest: int
    data: bytes
    parts: int

    @property
    def is_whole(self) -> bool:
        return self.parts <= 0

    @property
    def size(self) -> int:
        assert self.is_whole
        return len(self.data)

    def step(self) -> None:
        assert self.parts > 0
        self.parts -= 1

    def read(self, start: int, end: int) -> bytes:
        return self.data[start:end]


@dataclass
class DictEntries:
    """Some workers' entries, gathered in one part: by table, a value of all its workers' tiers by key."""

    values: dict[int, dict[int, int]]
    is_whole: bool = False

    def step(self) -> None:
        self.is_whole = True

    def tables(self) -> list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        tables = [self.values.get(table, {}) for table in range(1 + max(self.values, default=-1))]
        return [
            (np.array(list(each), np.uint64), np.array(list(each.values()), np.uint64)) for each in tables
        ]


@dataclass
class DictTables:
    """Twin of `ShardTables`. `rebuild_every`: each so many-th edit pretends to rebuild."""

    rebuild_every: int = 0
    fields: Fields = field(default_factory=dict)
    edits: int = 0
    snapshot_parts: int = 1
    cleared: list[bytes] = field(default_factory=list)
    """Groups that the next step gives out."""
    reports: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """Keys named by a worker that reports, by table and slot."""
    ended: set[tuple[int, int]] = field(default_factory=set)

    @property
    def entries(self) -> int:
        return len({(key, table) for key, table, _ in self.fields})

    @property
    def is_growing(self) -> bool:
        return False

    @property
    def growths(self) -> int:
        return 0

    @property
    def is_busy(self) -> bool:
        return bool(self.ended)

    def open_tables(self, tables: int) -> Patches:
        return Patches(b"", 0)

    def begin_report(self, table: int, slot: int) -> None:
        self.reports[table, slot] = set()
        self.ended.discard((table, slot))

    def end_report(self, table: int, slot: int) -> None:
        if set(self.holdings(table, slot)[0].tolist()) == self.reports[table, slot]:
            self.drop_report(table, slot)
        else:
            self.ended.add((table, slot))

    def drop_report(self, table: int, slot: int) -> None:
        self.reports.pop((table, slot), None)
        self.ended.discard((table, slot))

    def is_reporting(self, table: int, slot: int) -> bool:
        return (table, slot) in self.reports

    def is_clearing(self, table: int, slot: int) -> bool:
        return _GROUP.pack(_CLEAR, table, slot, 0) in self.cleared

    def step(self) -> Patches:
        groups, self.cleared = self.cleared, []
        for table, slot in sorted(self.ended):
            for key in sorted(set(self.holdings(table, slot)[0].tolist()) - self.reports[table, slot])[:2]:
                _put(self.fields, key, table, slot, 0)
                groups.append(_GROUP.pack(key, table, slot, 0))
            self.end_report(table, slot)
        return Patches(b"".join(groups), len(groups))

    def held(self, table: int, slot: int) -> tuple[int, int]:
        keys, tiers = self.holdings(table, slot)
        return keys.size, holdings_digest(keys, tiers)

    def edit(self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]) -> Patches:
        groups = []
        for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True):
            if self.fields.get((key, table, slot), 0) != tier:
                _put(self.fields, key, table, slot, tier)
                groups.append(_GROUP.pack(key, table, slot, tier))
            named = self.reports.get((table, slot), set())
            named.discard(key)
            if tier:
                named.add(key)
        self.edits += 1
        if self.rebuild_every and self.edits % self.rebuild_every == 0:
            return Patches(b"", 1, rebuilt=True)
        return Patches(b"".join(groups), len(groups))

    def clear_worker(self, table: int, slot: int) -> None:
        self.drop_report(table, slot)
        _put(self.fields, _CLEAR, table, slot, 0)
        self.cleared.append(_GROUP.pack(_CLEAR, table, slot, 0))

    def holdings(self, table: int, slot: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        held = {key: tier for (key, *place), tier in self.fields.items() if place == [table, slot]}
        return np.array(list(held), np.uint64), np.array(list(held.values()), np.uint8)

    def freeze(self) -> "FrozenDict":
        return FrozenDict(self.digest(), _encoded(self.fields), self.snapshot_parts)

    def snapshot(self) -> bytes:
        return self.freeze().data

    def freeze_entries(self, workers: Iterable[tuple[int, int]]) -> DictEntries:
        values: dict[int, dict[int, int]] = {}
        for place in workers:
            for (key, *at), tier in self.fields.items():
                if tuple(at) == place:
                    of_table = values.setdefault(place[0], {})
                    of_table[key] = of_table.get(key, 0) | tier << 2 * place[1]
        return DictEntries(values)

    def restore(self, table: int, keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        if len(set(keys.tolist())) < keys.size:
            raise ProtocolError("a key is given twice", field="keys")
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            for slot in range(32):
                _put(self.fields, key, table, slot, value >> 2 * slot & 3)

    def digest(self) -> int:
        return _digest(self.fields)


@dataclass
class DictView:
    """Twin of `IndexView`, for one shard."""

    fields: Fields = field(default_factory=dict)
    sequence: int = 0
    present: bool = False
    arriving: bytes = b""
    loads: int = 0
    drops: int = 0
    snapshot_parts: int = 1

    def load_snapshot(self, shard: int, data: bytes, sequence: int, digest: int) -> None:
        self.begin_snapshot(shard)
        self.add_snapshot(shard, data)
        self.end_snapshot(shard, sequence, digest)

    def begin_snapshot(self, shard: int) -> None:
        self.arriving = b""

    def add_snapshot(self, shard: int, data: bytes) -> None:
        self.arriving += data

    def drop_snapshot(self, shard: int) -> None:
        self.arriving = b""
        self.drops += 1

    def end_snapshot(self, shard: int, sequence: int, digest: int) -> None:
        data = self.arriving
        if len(data) % _GROUP.size:
            raise ProtocolError("malformed", field="snapshot")
        fields: Fields = {}
        for key, table, slot, tier in _GROUP.iter_unpack(data):
            fields[key, table, slot] = tier
        if _digest(fields) != digest:
            raise ProtocolError("another digest", field="digest")
        self.fields, self.sequence, self.present = fields, sequence, True
        self.loads += 1

    def apply(self, shard: int, first_sequence: int, count: int, payload: bytes) -> ApplyResult:
        if not self.present or first_sequence > self.sequence + 1:
            return ApplyResult(0, 0, gap=True)
        if len(payload) != count * _GROUP.size:
            raise ProtocolError("malformed", field="patches")
        old = min(count, self.sequence + 1 - first_sequence)
        for group in list(_GROUP.iter_unpack(payload))[old:]:
            _put(self.fields, *group)
        self.sequence = max(self.sequence, first_sequence + count - 1)
        return ApplyResult(count - old, old, gap=False)

    def digest(self, shard: int) -> int:
        return _digest(self.fields)

    def forget(self, shard: int) -> None:
        self.present = False

    def has_fields(self, shard: int, table: int, slot: int) -> bool:
        return self.present and any(place[1:] == (table, slot) for place in self.fields)

    def is_growing(self, shard: int) -> bool:
        return False

    def freeze(self, shard: int) -> "FrozenDict":
        return FrozenDict(_digest(self.fields), _encoded(self.fields), self.snapshot_parts)

    def applied_sequence(self, shard: int) -> int:
        return self.sequence
