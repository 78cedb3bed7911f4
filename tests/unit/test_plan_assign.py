"""Tables and slots are given append-only, and nothing else of the file changes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import PlanError
from kvcompass.plan import assign_text, parse_plan
from kvcompass.plan.assign import assign_workers
from kvcompass.plan.model import Worker
from tests.models.example_plan import EXAMPLE_TEXT, THREE_REGIONS

UNASSIGNED_TEXT = re.sub(r"^(table|slot) = \d+\n|^slots_given.*\n", "", EXAMPLE_TEXT, flags=re.MULTILINE)
GIVEN = "slots_given = [2, 2, 2]"
WORKER = THREE_REGIONS.workers[0]
REGIONS = st.sampled_from(("us", "eu", "asia"))


def worker(name: str, region: str, table: int = -1, slot: int = -1) -> Worker:
    return replace(WORKER, id=name, region=region, table=table, slot=slot)


def places(workers: Iterable[Worker]) -> list[tuple[int, int]]:
    return [(each.table, each.slot) for each in workers]


def assign(workers: Sequence[Worker], *, slots: int = 16, given: Sequence[int] = ()) -> tuple[Worker, ...]:
    return assign_workers(workers, slots=slots, given=given)[0]


def test_the_example_is_what_assigning_gives() -> None:
    assert parse_plan(assign_text(UNASSIGNED_TEXT)) == THREE_REGIONS


def test_a_full_assignment_leaves_the_text_alone() -> None:
    assert assign_text(EXAMPLE_TEXT) == EXAMPLE_TEXT


def test_only_lines_are_added() -> None:
    after = assign_text(UNASSIGNED_TEXT).splitlines()
    added = [line for line in after if re.fullmatch(r"(table|slot) = \d+|slots_given = \[2, 2, 2\]", line)]
    assert len(added) == 2 * len(THREE_REGIONS.workers) + 1
    assert [line for line in after if line not in added] == UNASSIGNED_TEXT.splitlines()


@pytest.mark.parametrize(
    "entry",
    [
        "[[worker]]   # the new one\n{fields}   # last field\n\n# the end\n",
        "[[worker]]\n{fields}",
        "  [[ 'worker' ]]\n{fields}\n  # a comment\n\n",
        '[["worker"]]\n{fields}\n[extra]\n',
    ],
)
def test_comments_blank_lines_and_odd_headers_stay(entry: str) -> None:
    fields = (
        'id = "new"\nregion = "eu"\nurl = "http://h:1"\nevents = "tcp://h:2"\n'
        "reload_ms_per_token = 1\nprefill_ms_per_token = 1"
    )
    entry = entry.replace("[extra]\n", '[[sharing_group]]\nid = "g"\nsalt = "s"\n')
    text = EXAMPLE_TEXT + "\n" + entry.format(fields=fields)
    after = assign_text(text)
    assert after.count("table = 1\nslot = 2\n") == 1
    after_old = after.replace("table = 1\nslot = 2\n", "").replace("slots_given = [2, 3, 2]", GIVEN)
    assert after_old.rstrip("\n") == text.rstrip("\n")
    assert parse_plan(after).workers[-1].slot == 2


def test_line_endings_are_kept() -> None:
    text = UNASSIGNED_TEXT.replace("\n", "\r\n")
    after = assign_text(text)
    assert after.count("\n") == after.count("\r\n")
    assert parse_plan(after) == THREE_REGIONS


@pytest.mark.parametrize(
    "text",
    [
        UNASSIGNED_TEXT.replace('salt = ""', 'salt = """\n[[worker]]\n"""'),
        UNASSIGNED_TEXT[: UNASSIGNED_TEXT.index("[[worker]]")].replace(
            "[fleet]",
            'worker = [{ id = "w", region = "us", url = "http://h:1", events = "tcp://h:2", '
            "prefill_ms_per_token = 1, reload_ms_per_token = 1 }]\n[fleet]",
        ),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_refused_with_the_places(text: str) -> None:
    with pytest.raises(PlanError, match="table 0, slot 0"):
        assign_text(text)


def test_a_faulty_plan_is_not_touched() -> None:
    with pytest.raises(PlanError, match=r"unit\[1\].shard"):
        assign_text(UNASSIGNED_TEXT.replace("shard = 1", "shard = 0"))


@pytest.mark.parametrize("slots", [16, 32])
def test_the_worker_after_a_full_table_opens_another(slots: int) -> None:
    workers = tuple(worker(f"w{i}", "us") for i in range(slots + 1))
    assert places(assign(workers, slots=slots)) == [(0, i) for i in range(slots)] + [(1, 0)]


def test_table_ids_are_shared_by_all_regions() -> None:
    workers = (worker("a", "us", 0, 0), worker("b", "eu", 1, 0), *(worker(f"w{i}", "us") for i in range(16)))
    assert places(assign(workers))[-2:] == [(0, 15), (2, 0)]


def test_a_slot_that_was_skipped_or_left_is_not_given() -> None:
    old = tuple(worker(f"o{i}", "us", 0, i) for i in range(1, 16))
    workers = (*old, worker("a", "us", 1, 0), worker("b", "us", 1, 2), worker("new", "us"))
    assert places(assign(workers))[-1] == (1, 3)
    assert places(assign(workers, given=(16, 7)))[-1] == (1, 7)
    assert places(assign(workers, given=(16, 16)))[-1] == (2, 0)
    assert places(assign((worker("new", "eu"),), given=(16, 7)))[-1] == (2, 0)


def test_places_that_were_left_are_given_first_when_that_is_asked_for_and_in_the_own_region_only() -> None:
    old = (worker("a", "us", 0, 1), worker("b", "us", 0, 3), worker("c", "eu", 1, 1))
    new = tuple(worker(f"n{i}", "us") for i in range(4))
    workers, given = assign_workers((*new, *old), slots=16, given=(5, 2), reuse=True)
    assert places(workers[:4]) == [(0, 0), (0, 2), (0, 4), (0, 5)]
    assert given == (6, 2)
    assert places(assign_workers((*new, *old), slots=16, given=(5, 2))[0][:4]) == [
        (0, i) for i in range(5, 9)
    ]


@pytest.mark.parametrize("gone", range(6))
def test_a_worker_put_in_anothers_stead_gets_another_place(gone: int) -> None:
    """One edit of the file: the old worker's lines go, the new one's come, whatever was its place."""
    head, *entries = assign_text(EXAMPLE_TEXT).split("[[worker]]\n")
    left = THREE_REGIONS.workers[gone]
    entries[gone] = re.sub(r"(table|slot) = \d+\n", "", entries[gone]).replace(left.id, "new")
    after = parse_plan(assign_text("[[worker]]\n".join((head, *entries))))
    assert (after.workers[gone].table, after.workers[gone].slot) == (left.table, 2)
    assert sum(after.index.slots_given) == 7
    others = [each for each in THREE_REGIONS.workers if each is not left]
    assert [each for each in after.workers if each.id != "new"] == others


@pytest.mark.parametrize("line", ["", "slots_given = []   # none yet\n", "  slots_given=[1]\n"])
@pytest.mark.parametrize("index", ["[index]\n", "[ 'index' ]  # tables\nvalue_bits = 32\n"])
def test_the_count_of_given_slots_is_put_where_it_belongs(index: str, line: str) -> None:
    begin, end = EXAMPLE_TEXT.index("[index]"), EXAMPLE_TEXT.index("[routing]")
    after = assign_text(EXAMPLE_TEXT[:begin] + index + line + "\n" + EXAMPLE_TEXT[end:])
    assert parse_plan(after).index.slots_given == (2, 2, 2)
    assert after.count("# none yet") == line.count("# none yet")
    assert assign_text(after) == after
    without = assign_text(EXAMPLE_TEXT[:begin] + EXAMPLE_TEXT[end:])
    assert parse_plan(without).index.slots_given == (2, 2, 2)
    assert assign_text(without) == without


def test_table_ids_run_out_with_a_message() -> None:
    workers = (worker("a", "us", 4_095, 0), worker("b", "eu"))
    with pytest.raises(PlanError, match="4095"):
        assign(workers)


@settings(deadline=None)
@given(st.lists(REGIONS, max_size=60), st.lists(REGIONS, max_size=60), st.data())
def test_places_are_never_renumbered_shared_or_mixed(
    before: list[str], more: list[str], data: st.DataObject
) -> None:
    first, given = assign_workers([worker(f"a{i}", region) for i, region in enumerate(before)], slots=16)
    kept = [each for each in first if data.draw(st.booleans())] if len(first) < 8 else list(first)
    second, counts = assign_workers(
        [*kept, *(worker(f"b{i}", r) for i, r in enumerate(more))], slots=16, given=given
    )
    assert list(second[: len(kept)]) == kept
    assert not set(places(second[len(kept) :])) & set(places(first))
    assert len(set(places(second))) == len(second)
    regions: dict[int, set[str]] = {}
    for each in second:
        regions.setdefault(each.table, set()).add(each.region)
        assert 0 <= each.slot < 16
    assert all(len(found) == 1 for found in regions.values())
    assert assign_workers(second, slots=16, given=counts) == (second, counts)
