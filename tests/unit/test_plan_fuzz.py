"""Whatever is in the file, parsing gives a plan or a list of faults, never another error."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import PlanError
from kvcompass.index import index_shape
from kvcompass.levels import clipped_lengths, query_plan
from kvcompass.plan import assign_text, dump_plan, parse_plan
from kvcompass.plan.layout import layout_fields
from tests.models.example_plan import EXAMPLE_TEXT

LINES = EXAMPLE_TEXT.splitlines()
ASSIGNMENTS = [i for i, line in enumerate(LINES) if " = " in line and not line.startswith("#")]
VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        (
            "true",
            '""',
            '"x"',
            "[]",
            "[1, 2]",
            "[[]]",
            "{}",
            "{ a = {} }",
            "07:32:00",
            "1e400",
            '"""\n"""',
            "'\\'",
        )
    ),
    st.text(max_size=6),
)


def take(text: str) -> None:
    """All that is ever done to a plan that was accepted must work on this one."""
    try:
        plan = parse_plan(text, allow_unassigned=True)
    except PlanError as error:
        assert error.faults
        assert all(path and message for path, message in error.faults)
        return
    assert parse_plan(dump_plan(plan), allow_unassigned=True) == plan
    query_plan(plan)
    clipped_lengths(plan)
    layout_fields(plan)
    with contextlib.suppress(PlanError):
        index_shape(parse_plan(assign_text(text)))


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(ASSIGNMENTS), VALUES)
def test_any_value_in_any_place(line: int, value: str) -> None:
    name = LINES[line].split(" = ")[0]
    take("\n".join([*LINES[:line], f"{name} = {value}", *LINES[line + 1 :]]))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, len(LINES)), st.integers(0, 12))
def test_any_lines_missing(start: int, count: int) -> None:
    take("\n".join([*LINES[:start], *LINES[start + count :]]))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(LINES)), st.integers(0, len(LINES)))
def test_any_line_twice(source: int, target: int) -> None:
    take("\n".join([*LINES[:target], *LINES[source : source + 1], *LINES[target:]]))


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    take(text)
