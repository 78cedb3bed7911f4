"""Bytes from a peer: anything malformed is refused with ProtocolError, and nothing has changed."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import ProtocolError
from kvcompass.index import IndexShape, IndexView, ShardTables
from kvcompass.index import view as view_module
from kvcompass.index.shape import size_of
from kvcompass.kernels.image import BASE, BUCKETS
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.patch_records import BUCKET, CLEAR_WORKER, GROW, NODES, SPLIT, SPREAD, VALUE
from tests.models.index_naive import split_groups

SHAPE = IndexShape(shards=2, tables=2, value_bits=32, expected_entries=100)
SHAPES = {
    "fingerprints": SHAPE,
    "wide": IndexShape(shards=2, tables=2, value_bits=64, expected_entries=100),
    "paper": IndexShape(shards=2, tables=2, value_bits=32, expected_entries=100, layout="paper"),
}


def filled(shape: IndexShape = SHAPE) -> tuple[ShardTables, IndexView, bytes, int]:
    """Writer, a view before its last edits, and those edits."""
    writer, view = ShardTables(shape, 1, random_seed=4), IndexView(shape)
    keys = np.random.default_rng(9).integers(1 << 62, 1 << 63, 60, dtype=np.uint64)
    writer.edit(keys[:20], 1, 3, np.ones(20, np.uint8))
    view.load_snapshot(1, writer.snapshot(), 10, writer.digest())
    patches = writer.edit(keys, 1, 4, np.tile(np.array([1, 2], np.uint8), 30))
    if patches.rebuilt:
        raise AssertionError("the fixture's table is too small")
    return writer, view, patches.payload, patches.groups


def state(view: IndexView) -> tuple[bytes, bytes, int, list[bool]]:
    """All that is read: room that no row names may have been written."""
    rows = [row for row in view.directory if row[BUCKETS]]
    read = b"".join(
        view.words[int(row[BASE]) : int(row[BASE]) + size_of(row, view.shape.table_layout).words].tobytes()
        for row in rows
    )
    named = np.delete(view.directory, BASE, axis=1).tobytes()
    return read, named, view.applied_sequence(1), view.present.tolist()


def group(*words: int) -> bytes:
    return np.array([2 + len(words), 1, *words], "<u4").tobytes()


MALFORMED = {
    "half a word": b"\1\0\0",
    "empty group for a count of one": b"",
    "header cut off": np.array([2], "<u4").tobytes(),
    "length below the header": np.array([1, 0], "<u4").tobytes(),
    "length past the end": np.array([9, 0], "<u4").tobytes(),
    "largest length": np.array([2**32 - 1, 1], "<u4").tobytes(),
    "records missing": np.array([2, 1], "<u4").tobytes(),
    "most records": np.array([5, 2**32 - 1, VALUE, 0, 1], "<u4").tobytes(),
    "words after the last record": np.array([6, 1, VALUE, 0, 1, 0], "<u4").tobytes(),
    "words after the last group": group(VALUE, 0, 1) + b"\0\0\0\0",
    "unknown kind": group(0, 0, 0),
    "kind of a later version": group(99, 0, 0),
    "growth begins where there are other records": np.array([7, 2, GROW, 0, VALUE, 0, 1], "<u4").tobytes(),
    "swap without a growth": group(GROW, 1),
    "table": group(VALUE | 2 << 8, 0, 1),
    "largest table": group(VALUE | (2**24 - 1) << 8, 0, 1),
    "slot": group(VALUE, 10_000, 1),
    "largest slot": group(VALUE, 2**32 - 1, 1),
    "value cut off": group(VALUE, 0),
    "bucket": group(BUCKET, 10_000, 0, 0, 0, 0, 0, 0),
    "bucket cut off": group(BUCKET, 0, 0, 0, 0, 0, 0),
    "seed": group(BUCKET, 0, 0, 0, 0, 0, 256, 0),
    "node": group(NODES, 1, 2**32 - 1),
    "nodes cut off": group(NODES, 2, 0),
    "most nodes": group(NODES, 2**32 - 1, 0),
    "worker slot": group(CLEAR_WORKER, 16, 0, 1),
    "buckets to clear": group(CLEAR_WORKER, 3, 1, 10_000),
    "most buckets to clear": group(CLEAR_WORKER, 3, 2**32 - 1, 2**32 - 1),
}


MALFORMED_WIDE = {
    "value cut off": group(VALUE, 0, 1),
    "bucket cut off": group(BUCKET, 0, *[0] * 10),
    "seed": group(BUCKET, 0, *[0] * 8, 256, 0, 0),
    "fingerprints": group(BUCKET, 0, *[0] * 8, 0, 0, 1 << 24),
    "worker slot": group(CLEAR_WORKER, 32, 0, 1),
    "a narrow bucket": group(BUCKET, *[0] * 7),
}


@pytest.mark.parametrize("payload", MALFORMED_WIDE.values(), ids=MALFORMED_WIDE.keys())
def test_malformed_patches_of_wide_values_change_nothing(payload: bytes) -> None:
    _, view, _, _ = filled(SHAPES["wide"])
    before = state(view)
    with pytest.raises(ProtocolError, match="shard 1 from sequence 11"):
        view.apply(1, 11, 1, payload)
    assert state(view) == before


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_patches_change_nothing(payload: bytes) -> None:
    _, view, good, groups = filled()
    before = state(view)
    with pytest.raises(ProtocolError, match="shard 1 from sequence 11"):
        view.apply(1, 11, 1, payload)
    with pytest.raises(ProtocolError):
        view.apply(1, 11, groups + 1, good + payload)
    assert state(view) == before


def repeated(count: int, *words: int) -> bytes:
    return group(*words) * count


def costly(view: IndexView) -> dict[str, tuple[int, bytes]]:
    """Well-formed patches that take as long as WORK_MOST records, and one record more."""
    buckets, most = int(view.directory[2][BUCKETS]), view_module.WORK_MOST
    nodes = most // 8
    clears = most // (1 + buckets // 32)
    return {
        "values": (most, repeated(most, VALUE | 1 << 8, 0, 1)),
        "nodes": (8, repeated(8, NODES, nodes - 8, *[0] * (nodes - 8))),
        "clearing": (clears, repeated(clears, CLEAR_WORKER, 3, 0, buckets)),
    }


@pytest.mark.parametrize("kind", ["values", "nodes", "clearing"])
def test_one_message_cannot_cause_more_work_than_a_call_may_take(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "WORK_MOST", 1 << (16 if JIT else 8))
    _, view, _, _ = filled()
    count, payload = costly(view)[kind]
    assert view.apply(1, 11, count, payload).applied == count
    before = state(view)
    more = repeated(view_module.WORK_MOST, VALUE, 0, 1)
    with pytest.raises(ProtocolError, match=r"more than one message may.*of shard 1") as raised:
        view.apply(1, 11 + count, count + view_module.WORK_MOST, payload + more)
    assert raised.value.field == "patches"
    assert state(view) == before
    replayed = view.apply(1, 11, count + 1, payload + group(VALUE, 0, 2))
    assert (replayed.applied, replayed.refused_old) == (1, count), "what is passed over is no work"


def test_growing_is_work_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, view, _, _ = filled()
    buckets, nodes = int(view.directory[2][BUCKETS]), int(view.directory[2][3] + view.directory[2][4])
    spread = -(-nodes // 32)
    grown = group(GROW, 0) + group(SPREAD, 0, spread) + group(SPLIT, 0, buckets, *[0] * -(-buckets // 8))
    work = 1 + 1 + spread // 4 + 1 + buckets // 4
    monkeypatch.setattr(view_module, "WORK_MOST", work - 1)
    with pytest.raises(ProtocolError, match="more than one message may"):
        view.apply(1, 11, 3, grown)
    monkeypatch.setattr(view_module, "WORK_MOST", work)
    assert view.apply(1, 11, 3, grown).applied == 3


def test_no_table_grows_past_what_its_workers_can_fill() -> None:
    """Nor is one taken from a snapshot, so that no peer makes an edge take memory without bound."""
    small = dataclasses.replace(SHAPE, entries_most=1)
    writer, _, _, _ = filled()
    view = IndexView(small)
    view.load_snapshot(1, writer.snapshot(), 10, writer.digest())
    held = int(view.directory[2][BUCKETS])
    assert held <= small.buckets_most < 8 * held
    for doubled in range(9):
        buckets, nodes = (int(view.directory[2][BUCKETS + i]) for i in range(2))
        nodes += int(view.directory[2][BUCKETS + 2])
        spread = -(-nodes // 32)
        grown = group(GROW, 0) + group(SPREAD, 0, spread)
        grown += group(SPLIT, 0, buckets, *[0] * -(-buckets // 8)) + group(GROW, 1)
        before = state(view)
        if 2 * buckets > small.buckets_most:
            with pytest.raises(ProtocolError, match="double a table beyond what the plan's workers can fill"):
                view.apply(1, 11 + 4 * doubled, 4, grown)
            assert state(view) == before
            break
        view.apply(1, 11 + 4 * doubled, 4, grown)
    assert doubled > 0
    other, _, _, _ = filled(dataclasses.replace(SHAPE, expected_entries=1_000))
    before = state(view)
    with pytest.raises(
        ProtocolError, match=r"table \d of 1188 slots is more than the plan's workers can fill"
    ):
        view.load_snapshot(1, other.snapshot(), 99, other.digest())
    assert state(view) == before


def test_limits_themselves_are_accepted() -> None:
    _, view, _, _ = filled()
    buckets, nodes = int(view.directory[2][2]), int(view.directory[2][3] + view.directory[2][4])
    payload = b"".join(
        (
            group(VALUE, 4 * buckets - 1, 0),
            group(BUCKET, buckets - 1, 0, 0, 0, 0, 255, 0),
            group(NODES, 1, (nodes - 1) << 1),
            group(CLEAR_WORKER, 15, 0, buckets),
            np.array([2, 0], "<u4").tobytes(),
        )
    )
    assert view.apply(1, 11, 5, payload).applied == 5
    before = state(view)
    for payload in (
        group(VALUE, 4 * buckets, 0),
        group(BUCKET, buckets, 0, 0, 0, 0, 0, 0),
        group(NODES, 1, nodes << 1),
    ):
        with pytest.raises(ProtocolError):
            view.apply(1, 16, 1, payload)
    assert state(view) == before


def test_a_count_that_is_not_the_payloads_is_refused() -> None:
    _, view, payload, groups = filled()
    before = state(view)
    for count in (groups - 1, groups + 1, 0, 2**32 - 1):
        with pytest.raises(ProtocolError):
            view.apply(1, 11, count, payload)
    assert state(view) == before


@settings(max_examples=200 if JIT else 15, deadline=None)
@given(shape=st.sampled_from(list(SHAPES.values())), data=st.data())
def test_damaged_patches_are_refused_or_applied_within_bounds(shape: IndexShape, data: st.DataObject) -> None:
    writer, view, payload, groups = filled(shape)
    words = np.frombuffer(payload, "<u4").copy()
    for _ in range(data.draw(st.integers(1, 3))):
        words[data.draw(st.integers(0, words.size - 1))] = data.draw(
            st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))
        )
    before = state(view)
    try:
        view.apply(1, 11, groups, words.tobytes())
    except ProtocolError:
        assert state(view) == before
    view.load_snapshot(1, writer.snapshot(), 99, writer.digest())
    assert view.digest(1) == writer.digest()


def test_a_cut_or_damaged_snapshot_changes_nothing() -> None:
    writer, view, _, _ = filled()
    data, before = writer.snapshot(), state(view)
    cuts = range(0, len(data), 7 if JIT else 301)
    for bad in (*(data[:end] for end in cuts), data + b"\0", b"\0" + data):
        with pytest.raises(ProtocolError, match="snapshot"):
            view.load_snapshot(1, bad, 99, writer.digest())
    assert state(view) == before
    for at in range(0, len(data), 7 if JIT else 397):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        try:
            view.load_snapshot(1, bytes(damaged), 99, writer.digest())
        except ProtocolError:
            continue
        assert view.digest(1) == writer.digest()  # a padding bit of a bitmap
        view.load_snapshot(1, data, 99, writer.digest())
    with pytest.raises(ProtocolError, match="digest"):
        view.load_snapshot(1, data, 99, writer.digest() ^ 1)
    for count in (0, 4097, 2**32 - 1):
        with pytest.raises(ProtocolError, match=f"snapshot: {count} tables"):
            view.load_snapshot(1, data[:4] + count.to_bytes(4, "little") + data[8:], 99, writer.digest())


def test_a_snapshot_of_an_impossible_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, view, _, _ = filled()
    data, before = writer.snapshot(), state(view)
    for buckets in (0, (1 << 30) + 1, 2**32 - 1):
        with pytest.raises(ProtocolError, match="impossible size"):
            view.load_snapshot(1, data[:16] + buckets.to_bytes(4, "little") + data[20:], 99, writer.digest())
    for nodes in (2**20, 2**30):
        with pytest.raises(ProtocolError, match="impossible size"):
            view.load_snapshot(1, data[:20] + nodes.to_bytes(4, "little") + data[24:], 99, writer.digest())

    def refuse(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(view._arena, "has_room", lambda _size: False)
    monkeypatch.setattr(view._arena, "make_room", refuse)
    with pytest.raises(ProtocolError, match="no memory for table 0"):
        view.load_snapshot(1, data, 99, writer.digest())
    assert state(view) == before


def test_a_view_without_memory_to_double_a_table_asks_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, view, _, _ = filled()

    def refuse(*_arguments: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(view._arena, "has_room", lambda _size: False)
        patched.setattr(view._arena, "make_room", refuse)
        with pytest.raises(ProtocolError, match="no memory to double a table of shard 1"):
            view.apply(1, 11, 2, group(VALUE, 0, 0) + group(GROW, 0))
    assert view.applied_sequence(1) == 10
    view.load_snapshot(1, writer.snapshot(), 99, writer.digest())
    assert view.digest(1) == writer.digest()


def test_a_view_without_a_snapshot_reports_a_gap() -> None:
    _, _, payload, groups = filled()
    view = IndexView(SHAPE)
    for shard in (0, 1):
        result = view.apply(shard, 1, groups, payload)
        assert (result.applied, result.refused_old, result.gap) == (0, 0, True)


def test_every_group_is_within_the_payload_format() -> None:
    _, _, payload, groups = filled()
    assert len(split_groups(payload)) == groups == 60
