"""The log hands out every group exactly once in order, forgets within its bounds, and never cuts an entry."""

from hypothesis import given
from hypothesis import strategies as st

from kvcompass.roles.patch_log import PatchLog

entries = st.lists(st.integers(1, 5), max_size=40)


def payload_of(first: int, count: int) -> bytes:
    """A byte a group: its number."""
    return bytes((first + i) % 256 for i in range(count))


def filled(counts: list[int], groups_max: int = 10_000, bytes_max: int = 10_000) -> PatchLog:
    log = PatchLog(groups_max=groups_max, bytes_max=bytes_max)
    for count in counts:
        log.append(payload_of(log.sequence + 1, count), count)
    return log


@given(entries, st.integers(1, 12))
def test_a_reader_gets_every_group_once_and_in_order(counts, groups_max):
    log = filled(counts)
    cursor, received = 0, b""
    while (run := log.after(cursor, groups_max)) is not None:
        assert run.first == cursor + 1
        assert run.groups <= max(groups_max, *counts)
        received += run.payload
        cursor = run.last
    assert cursor == log.sequence == sum(counts)
    assert received == payload_of(1, sum(counts))


@given(entries, st.data())
def test_a_reader_in_the_middle_of_an_entry_gets_the_whole_entry(counts, data):
    log = filled(counts)
    cursor = data.draw(st.integers(0, log.sequence))
    run = log.after(cursor, 1)
    if cursor == log.sequence:
        assert run is None
    else:
        assert run is not None
        assert run.first <= cursor + 1 <= run.last
        assert run.payload == payload_of(run.first, run.groups)


@given(entries, st.data())
def test_what_is_forgotten_on_purpose_is_told_to_nobody_and_all_else_is(counts, data):
    log = filled(counts)
    for sequence in data.draw(st.lists(st.integers(0, log.sequence), max_size=4)):
        floor = max(log.floor, sequence)
        log.forget_up_to(sequence)
        assert log.floor == floor
        cursor = data.draw(st.integers(floor, log.sequence))
        run = log.after(cursor, 10_000)
        assert (run is None) == (cursor == log.sequence)
        if run is not None:
            assert run.first <= cursor + 1
            assert run.payload == payload_of(run.first, log.sequence - run.first + 1)


@given(entries, st.integers(1, 20), st.integers(1, 20))
def test_what_is_kept_is_the_newest_within_both_bounds(counts, groups_max, bytes_max):
    log = filled(counts, groups_max, bytes_max)
    kept = log.sequence - log.floor
    assert kept <= min(groups_max, bytes_max)
    cursor, received = log.floor, b""
    while (run := log.after(cursor, 3)) is not None:
        received += run.payload
        cursor = run.last
    assert received == payload_of(log.floor + 1, kept)
    boundaries = [sum(counts[:i]) for i in range(len(counts) + 1)]
    fitting = [start for start in boundaries if log.sequence - start <= min(groups_max, bytes_max)]
    assert log.floor == min(fitting)


@given(entries, entries)
def test_a_restart_takes_one_sequence_and_forgets_what_was_before(before, after):
    log = filled(before)
    log.restart()
    assert log.sequence == log.floor == log.restarted_at == sum(before) + 1
    assert log.after(log.sequence, 10) is None
    for count in after:
        log.append(payload_of(log.sequence + 1, count), count)
    run = log.after(log.floor, 10_000)
    assert run is None if not after else run is not None and run.first == sum(before) + 2


@given(
    st.integers(0, 50),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), min_size=1, max_size=30),
    st.data(),
)
def test_messages_that_overlap_are_handed_out_whole_and_miss_nothing(start, messages, data):
    """A message that came again with more is kept as it came: its first groups are known already."""
    log = PatchLog(groups_max=10_000, bytes_max=10_000)
    log.begin(start)
    for new, known in messages:
        known = min(known, log.sequence - start)
        first = log.sequence + 1 - known
        log.append(payload_of(first, known + new), known + new, known=known)
    assert log.sequence == start + sum(new for new, _ in messages)
    cursor = data.draw(st.integers(start, log.sequence))
    work = data.draw(st.integers(1, 20))
    while (run := log.after(cursor, work)) is not None:
        assert run.first <= cursor + 1 <= run.last
        assert run.payload == payload_of(run.first, run.groups)
        cursor = run.last
    assert cursor == log.sequence


@given(entries, st.lists(st.just(1), min_size=8, max_size=20), st.booleans())
def test_what_was_forgotten_at_once_leaves_all_the_room(before, after, restarts):
    log = filled(before, groups_max=8, bytes_max=8)
    if restarts:
        log.restart()
    else:
        log.begin(log.sequence + 3)
    for count in after:
        log.append(payload_of(log.sequence + 1, count), count)
    assert log.sequence - log.floor == 8
