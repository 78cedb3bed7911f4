"""How what agents send comes into a unit's tables: edits and reports, slice by slice."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.roles.messages import Edits, FullReport, Refusal
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.unit_copies import UnitCopies
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.worker_source import PartialReport, WorkerSource

EDIT_SLICE: Final = 256
"""Keys edited at once; bounds a log entry, so that a view applies it without holding requests up."""
WORK_SLICES: Final = 8
"""Slices edited in one call: a few milliseconds, whatever the size of a report."""
BUSY_KEYS: Final = 32
"""Keys edited in one call while a table is growing or is made ready for it: each does a part of that."""


class UnitEdits:
    """Owns each worker's backlog and open report; the desk is told what every slice did to the tables."""

    def __init__(
        self,
        tables: ShardWriter,
        desk: UnitDesk,
        copies: UnitCopies,
        *,
        bounds: UnitBounds,
        counters: UnitCounters,
    ) -> None:
        """`counters` is counted into."""
        self._tables = tables
        self._desk = desk
        self._copies = copies
        self._bounds = bounds
        self._counters = counters

    def add(self, source: WorkerSource, keys: NDArray[np.uint64], tiers: NDArray[np.uint8]) -> None:
        """Takes in edits of a worker: the first of them at once, the rest by `step`."""
        if 0 < keys.size <= EDIT_SLICE:
            source.backlog.append((keys, tiers))
        else:
            for start in range(0, keys.size, EDIT_SLICE):
                stop = start + EDIT_SLICE
                source.backlog.append((keys[start:stop], tiers[start:stop]))
        source.changed = source.changed or keys.size > 0
        self.step(source)

    def step(self, source: WorkerSource) -> None:
        """Does a part of what a worker's messages leave to do: a few milliseconds."""
        table, slot = source.worker.table, source.worker.slot
        if source.is_busy and self._copies.step():
            return
        if source.backlog and self._tables.is_clearing(table, slot):
            self._desk.tables_changed(self._tables.step())
            return
        if source.report is not None and source.report.has_ended:
            self._desk.tables_changed(self._tables.step())
        for _ in range(min(WORK_SLICES, len(source.backlog))):
            keys, tiers = source.backlog.popleft()
            busy = self._tables.is_busy
            if busy and keys.size > BUSY_KEYS:
                source.backlog.appendleft((keys[BUSY_KEYS:], tiers[BUSY_KEYS:]))
                keys, tiers = keys[:BUSY_KEYS], tiers[:BUSY_KEYS]
            self._desk.tables_changed(self._tables.edit(keys, table, slot, tiers))
            self._counters.edited_keys += keys.size
            if busy:
                break
        self._end_report(source)

    def begin_report(self, source: WorkerSource) -> None:
        """A report begins anew: what came before it, and is not in the table yet, it says again."""
        self.drop(source)
        source.in_step = False
        source.report_requested_us = None
        source.report = PartialReport(taken_in=source.lease_until_us is not None)
        if source.report.taken_in:
            self._tables.begin_report(source.worker.table, source.worker.slot)

    def add_to_report(
        self, source: WorkerSource, report: PartialReport, part: Edits | FullReport
    ) -> Refusal | None:
        """Takes in a chunk, or an edit that came between two; a report that grows too large is dropped."""
        report.size += part.keys.size
        if report.size > self._bounds.report_keys:
            self.drop(source)
            return Refusal(
                "full_report.keys",
                f"a report has at most {self._bounds.report_keys} keys, edits between included",
            )
        if report.taken_in:
            self.add(source, part.keys, part.tiers)
        return None

    def report_is_whole(self, source: WorkerSource, report: PartialReport) -> None:
        """Its last chunk has been added: `step` ends it once all of it is in the table."""
        report.is_whole = True
        if not report.taken_in:
            source.report = None
        self._end_report(source)

    def drop(self, source: WorkerSource) -> None:
        """Forgets what was taken in and is not in the table yet, and the report that it may be part of."""
        source.backlog.clear()
        source.report = None
        self._tables.drop_report(source.worker.table, source.worker.slot)

    def _end_report(self, source: WorkerSource) -> None:
        """Once all of a report is in the table, has what it does not name withdrawn; then all is in step."""
        report, table, slot = source.report, source.worker.table, source.worker.slot
        if report is None or not report.is_whole or source.backlog:
            return
        if not report.has_ended:
            report.has_ended = True
            self._tables.end_report(table, slot)
        if not self._tables.is_reporting(table, slot):
            source.report = None
            source.in_step = True
            source.changed = True
