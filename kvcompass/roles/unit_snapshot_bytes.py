"""The bytes of a unit's own snapshot: what its tables hold, keys and all.

Little-endian: magic, version of this format (uint32), bytes of the header (uint32) and of the whole (uint64);
the header as JSON; for each table its keys (uint64[n]), then their values (words of the plan's `value_bits`);
SHA-256 of everything before it. The header has the layout's fields and not their digest, so that a refusal
names the one that differs.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import KVCompassError

MAGIC: Final = b"KVCUNIT\n"
FORMAT: Final = 1
_FRONT: Final = struct.Struct("<8sIIQ")
_KEY_BYTES: Final = 8
_COUNT_BITS: Final = 62
"""An epoch is microseconds, a sequence one a change: a unit that goes on from one so large goes beyond what
messages and tables hold."""
_PART: Final = 65_536
"""Keys or values in one part of the bytes: half a megabyte."""

Entries = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""Keys and values of one table."""


class RestoreOutcome(StrEnum):
    """What became of a snapshot at a unit's start. A closed set: it is a metric's label."""

    RESTORED = "restored"
    MISSING = "missing"
    """There is no file: the first start, or the one after a refusal."""
    UNREADABLE = "unreadable"
    """The file cannot be read."""
    TOO_LARGE = "too_large"
    """More than the plan's workers can hold."""
    FOREIGN = "foreign"
    """It is no unit's snapshot."""
    FORMAT = "format"
    """Written in a format that this build does not know."""
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    SHARD = "shard"
    """It is another shard's."""
    LAYOUT = "layout"
    """Its keys or values mean something else."""
    NEWER_PLAN = "newer_plan"
    """Written under a plan that is more than one version ahead."""


class SnapshotRefusedError(KVCompassError):
    """A snapshot that must not be restored. The message says why, and what to do."""

    def __init__(self, outcome: RestoreOutcome, message: str) -> None:
        super().__init__(message, field="snapshot.path")
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class SavedWorker:
    """A worker's place, and what the tables held of it."""

    id: str
    table: int
    slot: int
    entries: int
    holdings_digest: int
    """`kvcompass.keys.digest.holdings_digest`."""


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """What a snapshot says of itself."""

    shard: int
    epoch: int
    """Of the unit that wrote it."""
    sequence: int
    """Newest patch group in it."""
    plan_version: int
    value_bits: int
    layout: Mapping[str, str]
    """`kvcompass.plan.layout.layout_fields`."""
    workers: tuple[SavedWorker, ...]


def bytes_of(head: SnapshotHead, tables: Sequence[Entries]) -> Iterator[bytes]:
    """A snapshot, in parts of half a megabyte at most (the header may be larger)."""
    width = head.value_bits // 8
    sizes = [keys.size for keys, _ in tables]
    text = json.dumps(asdict(head) | {"entries": sizes}, separators=(",", ":")).encode()
    whole = _FRONT.size + len(text) + sum(sizes) * (_KEY_BYTES + width) + hashlib.sha256().digest_size
    digest = hashlib.sha256()
    front = _FRONT.pack(MAGIC, FORMAT, len(text), whole) + text
    digest.update(front)
    yield front
    for table in tables:
        for array, bytes_a_word in zip(table, (_KEY_BYTES, width), strict=True):
            for start in range(0, array.size, _PART):
                part = array[start : start + _PART].astype(f"<u{bytes_a_word}", copy=False).tobytes()
                digest.update(part)
                yield part
    yield digest.digest()


def head_of(data: bytes) -> tuple[SnapshotHead, Sequence[Entries]]:
    """What a snapshot says of itself, and views of what it holds: of its tables, keys and values as stored.

    Raises:
        SnapshotRefusedError: It is not whole, not as it was written, or of another format.
    """
    checksum = hashlib.sha256().digest_size
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise SnapshotRefusedError(RestoreOutcome.FOREIGN, "this is no unit's snapshot: correct the path")
    if len(data) < _FRONT.size + checksum:
        raise _truncated(f"{len(data)} bytes are less than the least snapshot has")
    _, version, head_size, whole = _FRONT.unpack_from(data)
    if version != FORMAT:
        raise SnapshotRefusedError(
            RestoreOutcome.FORMAT,
            f"it is in format {version}, and this build reads {FORMAT}: run the build that wrote it, or"
            " let agents refill the unit",
        )
    if len(data) < whole:
        raise _truncated(f"{whole} bytes were written and {len(data)} are there")
    if len(data) > whole:
        raise corrupt(f"{whole} bytes were written and {len(data)} are there")
    view = memoryview(data)
    if hashlib.sha256(view[:-checksum]).digest() != bytes(view[-checksum:]):
        raise corrupt("its SHA-256 is not that of its bytes")
    start = _FRONT.size + head_size
    try:
        raw = json.loads(bytes(view[_FRONT.size : start]))
        head, sizes = _head(raw), raw["entries"]
        width = head.value_bits // 8
        if start + sum(sizes) * (_KEY_BYTES + width) + checksum != whole:
            raise corrupt("its tables are not as large as its header says")
        tables = []
        for size in sizes:
            keys = np.frombuffer(data, "<u8", size, start)
            values = np.frombuffer(data, f"<u{width}", size, start + keys.nbytes)
            start += keys.nbytes + values.nbytes
            tables.append((keys, values))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise corrupt(f"its header cannot be read ({error!r})") from error
    return head, tables


def corrupt(what: str) -> SnapshotRefusedError:
    """The refusal of a file whose content is not what a unit wrote."""
    return SnapshotRefusedError(
        RestoreOutcome.CORRUPT, f"it is damaged: {what}; look at the disk, agents refill the unit"
    )


def _truncated(what: str) -> SnapshotRefusedError:
    return SnapshotRefusedError(
        RestoreOutcome.TRUNCATED, f"it is cut off: {what}; look at the disk, agents refill the unit"
    )


def _head(raw: Mapping[str, Any]) -> SnapshotHead:
    fields = {each.name: raw[each.name] for each in dataclass_fields(SnapshotHead)}
    fields["workers"] = tuple(SavedWorker(**worker) for worker in raw["workers"])
    head = SnapshotHead(**fields)
    numbers = [head.shard, head.epoch, head.sequence, head.plan_version, head.value_bits, *raw["entries"]]
    for each in head.workers:
        numbers += (each.table, each.slot, each.entries, each.holdings_digest)
    if not all(type(number) is int and number >= 0 for number in numbers) or type(head.layout) is not dict:
        raise TypeError("a field is of another type")
    if max(head.epoch, head.sequence) >> _COUNT_BITS:
        raise ValueError("no unit counts so far")
    return head
