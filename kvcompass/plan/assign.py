"""Tables and slots for the workers that have none, written into the plan's own text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvcompass.errors import PlanError
from kvcompass.plan.model import Plan, Worker, worker_slots
from kvcompass.plan.parse import parse_plan
from kvcompass.plan.places import vacant
from kvcompass.plan.sections import TABLE_MAX, UNASSIGNED

_WORKER_HEADER: Final = re.compile(r"""\s*\[\[\s*(worker|"worker"|'worker')\s*\]\]""")
_INDEX_HEADER: Final = re.compile(r"""\s*\[\s*(index|"index"|'index')\s*\]""")
_SLOTS_GIVEN: Final = re.compile(r"(\s*slots_given\s*=\s*)\[[^\]\n]*\]")
_ANY_HEADER: Final = re.compile(r"\s*\[")
_BLANK_OR_COMMENT: Final = re.compile(r"\s*(#|$)")


def assign_text(text: str, *, reuse: bool = False) -> str:
    """Return the plan's text with a table and a slot for every worker; all else stays as it was, to the byte.

    Places already given are never changed: `index.slots_given` in the text keeps count. The same text gives
    the same places. `reuse`: those whose worker has left come first (units refuse them until they are free).

    Raises:
        PlanError: The plan is faulty otherwise, or its workers are not written as `[[worker]]` tables.
    """
    plan = parse_plan(text, allow_unassigned=True)
    workers, given = assign_workers(
        plan.workers, slots=worker_slots(plan.index.value_bits), given=plan.index.slots_given, reuse=reuse
    )
    after = replace(plan, workers=workers, index=replace(plan.index, slots_given=given))
    if after == plan:
        return text
    edited = _insert(text, plan.workers, workers, given)
    if edited is None or not _says(edited, after):
        places = "; ".join(f"{worker.id}: table {worker.table}, slot {worker.slot}" for worker in workers)
        raise PlanError(
            (
                (
                    "worker",
                    "cannot be edited, write each as a [[worker]] table and [index] as a table, or add by"
                    f" hand index.slots_given = {list(given)}; {places}",
                ),
            )
        )
    return edited


def assign_workers(
    workers: Sequence[Worker], *, slots: int, given: Sequence[int] = (), reuse: bool = False
) -> tuple[tuple[Worker, ...], tuple[int, ...]]:
    """Return the workers, in order, each with a table and a slot, and the slots then given in each table.

    A new worker takes the slot after the last one ever given in its region's last table, or opens a table
    when that is full. A place whose worker has left is given again only on `reuse`: views that are behind
    would take the new worker's keys for the old one's until all have been rid of those
    (`kvcompass.roles.free_places`).

    Args:
        workers: Those unassigned have table and slot -1.
        slots: Of a table.
        given: Slots given in each table before; a table not listed has as many as its workers show.
        reuse: Give places again that are vacant in a table of the worker's region, the lowest first.

    Raises:
        PlanError: The fleet has run out of table ids.
    """
    placed = [worker for worker in workers if worker.table != UNASSIGNED]
    counts = [*given, *[0] * (1 + max((worker.table for worker in placed), default=-1) - len(given))]
    last_table: dict[str, int] = {}
    for worker in placed:
        counts[worker.table] = max(counts[worker.table], worker.slot + 1)
        last_table[worker.region] = max(worker.table, last_table.get(worker.region, 0))
    regions = {worker.table: worker.region for worker in placed}
    empty = vacant(placed, dict(enumerate(counts))) if reuse else []
    assigned = []
    for worker in workers:
        if worker.table != UNASSIGNED:
            assigned.append(worker)
            continue
        again = next((place for place in empty if regions.get(place[0]) == worker.region), None)
        if again is not None:
            empty.remove(again)
            assigned.append(replace(worker, table=again[0], slot=again[1]))
            continue
        table = last_table.get(worker.region)
        if table is None or counts[table] >= slots:
            table = last_table[worker.region] = len(counts)
            counts.append(0)
            if table > TABLE_MAX:
                raise PlanError((("worker", f"{worker.id}: all table ids up to {TABLE_MAX} are taken"),))
        assigned.append(replace(worker, table=table, slot=counts[table]))
        counts[table] += 1
    return tuple(assigned), tuple(counts)


def _insert(text: str, before: Sequence[Worker], after: Sequence[Worker], given: Sequence[int]) -> str | None:
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    ending = "\r\n" if lines[0].endswith("\r\n") else "\n"
    headers = [i for i, line in enumerate(lines) if _WORKER_HEADER.match(line)]
    if len(headers) != len(before):
        return None
    for header, old, new in reversed(list(zip(headers, before, after, strict=True))):
        if old != new:
            _add(lines, header, (f"table = {new.table}", f"slot = {new.slot}"), ending)
    _put_slots_given(lines, given, ending)
    return "".join(lines)


def _put_slots_given(lines: list[str], given: Sequence[int], ending: str) -> None:
    for i, line in enumerate(lines):
        if _SLOTS_GIVEN.match(line):
            lines[i] = _SLOTS_GIVEN.sub(rf"\g<1>{list(given)}", line)
            return
    header = next((i for i, line in enumerate(lines) if _INDEX_HEADER.match(line)), None)
    if header is None:
        header = next(i for i, line in enumerate(lines) if _WORKER_HEADER.match(line))
        lines[header:header] = [f"[index]{ending}", ending]
    _add(lines, header, (f"slots_given = {list(given)}",), ending)


def _add(lines: list[str], header: int, added: Sequence[str], ending: str) -> None:
    """Append lines to the section that begins at `header`, indented as its last line."""
    last = _last_line_of_entry(lines, header)
    body = lines[last].rstrip("\r\n")
    indent = body[: len(body) - len(body.lstrip())]
    lines[last] = "".join(f"{line}{ending}" for line in (body, *(f"{indent}{field}" for field in added)))


def _last_line_of_entry(lines: Sequence[str], header: int) -> int:
    last = header
    for i in range(header + 1, len(lines)):
        if _ANY_HEADER.match(lines[i]):
            break
        if not _BLANK_OR_COMMENT.match(lines[i]):
            last = i
    return last


def _says(text: str, plan: Plan) -> bool:
    try:
        return parse_plan(text) == plan
    except PlanError:
        return False
