"""Whatever is not whole, not as it was written or not for this unit is refused, and says why."""

import hashlib
import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.messages import Watermark
from kvcompass.roles.unit_snapshot import restore_tables, snapshot_bytes_most
from kvcompass.roles.unit_snapshot_bytes import (
    FORMAT,
    MAGIC,
    RestoreOutcome,
    SavedWorker,
    SnapshotHead,
    SnapshotRefusedError,
    bytes_of,
)
from services.wire.index import decode_unit_to_edge, encode_unit_to_edge
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_table import DictTables
from tests.models.unit_snapshots import held, random_holdings, real_tables, restored, settled_unit, written

PLAN = replication_plan()
HELD = random_holdings(PLAN, 40, seed=1)
FRONT = struct.Struct("<8sIIQ")


@pytest.fixture(scope="module")
def data() -> bytes:
    return written(settled_unit(PLAN, HELD))


def refusal(data: bytes, plan: Any = PLAN, *, tables: Callable[[Any], Any] = real_tables) -> RestoreOutcome:
    """Of a snapshot that must be refused, with a message that says what to do."""
    with pytest.raises(SnapshotRefusedError) as caught:
        restored(data, plan, tables=tables)
    assert caught.value.field == "snapshot.path"
    assert len(str(caught.value)) > 40
    return caught.value.outcome


def test_every_byte_counts(data):
    refused = {
        RestoreOutcome.FOREIGN,
        RestoreOutcome.FORMAT,
        RestoreOutcome.TRUNCATED,
        RestoreOutcome.CORRUPT,
    }
    drawn = random.Random(1)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= drawn.randint(1, 255)
        assert refusal(bytes(flipped), tables=lambda _plan: DictTables()) in refused, at
    assert held(restored(data, PLAN)) == HELD


def test_it_is_refused_wherever_it_is_cut(data):
    for size in range(len(data)):
        assert refusal(data[:size], tables=lambda _plan: DictTables()) is RestoreOutcome.TRUNCATED, size


def test_what_follows_it_is_refused(data):
    with pytest.raises(
        SnapshotRefusedError, match=f"{len(data)} bytes were written and {len(data) + 1}"
    ) as caught:
        restored(data + b"\0", PLAN)
    assert caught.value.outcome is RestoreOutcome.CORRUPT


@pytest.mark.parametrize("text", [b"<html>", b"\0" * 100, b"KVC", b"K"])
def test_another_file_is_called_so(text):
    expected = RestoreOutcome.TRUNCATED if MAGIC.startswith(text) else RestoreOutcome.FOREIGN
    assert refusal(text) is expected


@pytest.mark.parametrize("version", [0, FORMAT + 1, 2**32 - 1])
def test_a_format_of_another_build_is_refused_even_if_all_else_is_right(data, version):
    magic, _, head, whole = FRONT.unpack_from(data)
    body = FRONT.pack(magic, version, head, whole) + data[FRONT.size : -32]
    assert refusal(body + hashlib.sha256(body).digest()) is RestoreOutcome.FORMAT


def test_another_shards_is_refused():
    plan = replication_plan(shards=2)
    mine = written(settled_unit(plan, {}))
    with pytest.raises(SnapshotRefusedError, match="path of its own") as caught:
        restore_tables(mine, plan, "unit-1", layout=layout_fields(plan), tables=real_tables(plan, 1))
    assert caught.value.outcome is RestoreOutcome.SHARD


def test_another_layout_is_refused_by_the_name_of_the_field(data):
    other = replace(PLAN, model=replace(PLAN.model, id="another-model"))
    with pytest.raises(SnapshotRefusedError, match=r"model is 'another-model' here and 'm' in it") as caught:
        restored(data, other)
    assert caught.value.outcome is RestoreOutcome.LAYOUT
    wider = replace(PLAN, index=replace(PLAN.index, value_bits=64))
    assert refusal(data, wider) is RestoreOutcome.LAYOUT


def test_a_plan_far_ahead_is_refused():
    data = written(settled_unit(replication_plan(plan_version=7), HELD))
    assert refusal(data, replication_plan(plan_version=5)) is RestoreOutcome.NEWER_PLAN
    assert held(restored(data, replication_plan(plan_version=6))) == HELD


# --- what only a hand, or a fault of ours, could write: its checksum is right -------------------------


def made(keys: list[int], values: list[int], **head: Any) -> bytes:
    workers = tuple(
        SavedWorker(each.id, each.table, each.slot, 0, 0) for each in PLAN.workers if each.id != "a-0"
    )
    first = SavedWorker("a-0", 0, 0, len(keys), head.pop("digest", 0))
    fields: dict[str, Any] = {
        "shard": 0, "epoch": 1, "sequence": 1, "plan_version": 1, "value_bits": 32,
        "layout": layout_fields(PLAN), "workers": (first, *workers),
    }  # fmt: skip
    tables = [(np.array(keys, np.uint64), np.array(values, np.uint64))]
    return b"".join(bytes_of(SnapshotHead(**(fields | head)), tables))


@pytest.mark.parametrize(
    ("keys", "values", "words"),
    [
        ([5, 5], [1, 1], "twice"),
        ([5], [3], "tier"),
        ([2**63], [1], "shard"),
        ([5, 6], [1, 0], "1 of 2 keys"),
        ([5], [1], "or others"),
    ],
)
@pytest.mark.parametrize("tables", [real_tables, lambda _plan: DictTables()])
def test_nonsense_with_a_right_checksum_is_refused(keys, values, words, tables):
    with pytest.raises(SnapshotRefusedError, match=words) as caught:
        restored(made(keys, values), PLAN, tables=tables)
    assert caught.value.outcome is RestoreOutcome.CORRUPT


def rewritten(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The same snapshot with another header, and sizes and checksum to suit."""
    _, version, size, whole = FRONT.unpack_from(data)
    raw = json.loads(data[FRONT.size : FRONT.size + size])
    text = json.dumps(raw if (new := change(raw)) is None else new).encode()
    body = FRONT.pack(MAGIC, version, len(text), whole - size + len(text)) + text
    body += data[FRONT.size + size : -32]
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.pop("epoch") and None,
        lambda raw: raw.update(sequence="1"),
        lambda raw: raw.update(plan_version=None),
        lambda raw: raw.update(epoch=2**64 - 1),
        lambda raw: raw.update(epoch=2**62),
        lambda raw: raw.update(sequence=2**62),
        lambda raw: raw.update(epoch=10**30),
        lambda raw: raw.update(value_bits=24),
        lambda raw: raw.update(value_bits=0),
        lambda raw: raw.update(workers=[{"id": "a-0"}]),
        lambda raw: raw.update(workers=3),
        lambda raw: raw["workers"][0].update(slot=-1),
        lambda raw: raw["workers"][0].update(entries=1e3),
        lambda raw: raw.update(entries=[-1, *raw["entries"]]),
        lambda raw: raw.update(entries=[10**30]),
        lambda raw: raw.update(entries=raw["entries"][:1]),
        lambda raw: raw.update(layout=[]),
        lambda _raw: [],
        lambda _raw: 7,
    ],
)
def test_a_header_that_makes_no_sense_is_refused(data, change):
    assert refusal(rewritten(data, change)) is RestoreOutcome.CORRUPT


def test_a_unit_that_goes_on_from_the_farthest_can_say_where_it_is(data):
    """What comes after the largest that is taken still fits a message, and a view's own numbers."""
    unit = restored(
        rewritten(data, lambda raw: raw.update(epoch=2**62 - 1, sequence=2**62 - 1)), PLAN, epoch=7
    )
    assert unit.epoch == 2**62
    said = encode_unit_to_edge(Watermark(unit.epoch, unit.sequence, unit.digest))
    assert decode_unit_to_edge(said) == Watermark(unit.epoch, unit.sequence, unit.digest)


def test_a_header_that_says_the_same_in_other_words_is_taken(data):
    assert held(restored(rewritten(data, lambda _raw: None), PLAN)) == HELD


def test_the_bound_of_a_files_size_holds_more_than_a_unit_may_have(data):
    full = len(WORKERS) * PLAN.worker_shard_entries_max
    assert snapshot_bytes_most(PLAN) > 16 * full
    assert snapshot_bytes_most(PLAN) > len(data)
