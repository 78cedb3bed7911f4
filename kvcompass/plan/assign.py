"""Tables and slots for the workers that have none, written into the plan's own text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvcompass.errors import PlanError
from kvcompass.plan.model import Plan, Worker, worker_slots
from kvcompass.plan.parse import parse_plan
from kvcompass.plan.sections import TABLE_MAX, UNASSIGNED

_WORKER_HEADER: Final = re.compile(r"""\s*\[\[\s*(worker|"worker"|'worker')\s*\]\]""")
_ANY_HEADER: Final = re.compile(r"\s*\[")
_BLANK_OR_COMMENT: Final = re.compile(r"\s*(#|$)")


def assign_text(text: str) -> str:
    """Return the plan's text with a table and a slot for every worker; all else stays as it was, to the byte.

    Places already given are never changed. The same text gives the same places.

    Raises:
        PlanError: The plan is faulty otherwise, or its workers are not written as `[[worker]]` tables.
    """
    plan = parse_plan(text, allow_unassigned=True)
    assigned = assign_workers(plan.workers, slots=worker_slots(plan.index.value_bits))
    if assigned == plan.workers:
        return text
    edited = _insert(text, plan.workers, assigned)
    if edited is None or not _says(edited, replace(plan, workers=assigned)):
        places = "; ".join(f"{worker.id}: table {worker.table}, slot {worker.slot}" for worker in assigned)
        raise PlanError(
            (("worker", f"cannot be edited, write each as a [[worker]] table or add by hand {places}"),)
        )
    return edited


def assign_workers(workers: Sequence[Worker], *, slots: int) -> tuple[Worker, ...]:
    """Return the workers, in order, each with a table and a slot.

    A new worker takes the first free slot of its region's last table, or opens a table when that is full. A
    slot that a removed worker left is free again: first let the plan without that worker be in force for a
    lease.

    Args:
        workers: Those unassigned have table and slot -1.
        slots: Of a table.

    Raises:
        PlanError: The fleet has run out of table ids.
    """
    taken = {(worker.table, worker.slot) for worker in workers if worker.table != UNASSIGNED}
    last_table: dict[str, int] = {}
    for worker in workers:
        if worker.table != UNASSIGNED:
            last_table[worker.region] = max(worker.table, last_table.get(worker.region, 0))
    assigned = []
    for worker in workers:
        if worker.table != UNASSIGNED:
            assigned.append(worker)
            continue
        table = last_table.get(worker.region)
        free = next((slot for slot in range(slots) if (table, slot) not in taken), None)
        if table is None or free is None:
            table, free = 1 + max(last_table.values(), default=-1), 0
            if table > TABLE_MAX:
                raise PlanError((("worker", f"{worker.id}: all table ids up to {TABLE_MAX} are taken"),))
        last_table[worker.region] = table
        taken.add((table, free))
        assigned.append(replace(worker, table=table, slot=free))
    return tuple(assigned)


def _insert(text: str, before: Sequence[Worker], after: Sequence[Worker]) -> str | None:
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    headers = [i for i, line in enumerate(lines) if _WORKER_HEADER.match(line)]
    if len(headers) != len(before):
        return None
    for header, old, new in reversed(list(zip(headers, before, after, strict=True))):
        if old != new:
            last = _last_line_of_entry(lines, header)
            body = lines[last].rstrip("\r\n")
            ending = "\r\n" if lines[header].endswith("\r\n") else "\n"
            indent = body[: len(body) - len(body.lstrip())]
            lines[last] = (
                f"{body}{ending}{indent}table = {new.table}{ending}{indent}slot = {new.slot}{ending}"
            )
    return "".join(lines)


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
