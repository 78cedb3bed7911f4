"""The life of one table of a writer: it takes edits, and grows beside itself when it fills."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import ProtocolError
from kvcompass.index.build_beside import BuildBeside, BuildState
from kvcompass.index.bulk_build import BulkBuild
from kvcompass.index.merged_keys import all_keys, merged_keys
from kvcompass.index.open_report import OpenReport
from kvcompass.index.patches import PatchRun
from kvcompass.index.shape import TableSize, size_of
from kvcompass.index.table_arrays import blank_table, new_table
from kvcompass.index.table_memory import Touching, let_go, written_at_random
from kvcompass.kernels.arrays import U32, U64, Int
from kvcompass.kernels.growth import finish_growth, grow_slice
from kvcompass.kernels.image import BUCKETS, SALT, TABLE
from kvcompass.kernels.patch_records import GROW, GROW_BEGIN, GROW_SWAP
from kvcompass.kernels.state import (
    ENTRIES,
    FLIPS,
    HELD,
    MOVES,
    PINNED_EVER,
    SPLIT,
    Scratch,
    Table,
)
from kvcompass.kernels.writer import DONE, FULL, LONGEST_GROUP, clear_slice, edit_keys
from kvcompass.keys.digest import holdings_digest

OUT_WORDS: Final = LONGEST_GROUP + 65_536
"""Words of the buffer that a writer's kernels fill with patch groups."""
GROW_AT: Final = 0.86
"""Occupancy at which a table makes ready to double. Above about 0.95 inserts get slow and then fail."""
_SLICE: Final = 512
"""Buckets split or cleared in one group: about 1 ms at the writer, 0.1 ms at a view."""
_SPLITS_AN_EDIT: Final = 8
"""Buckets split by each call that edits."""
_SPLITS_AN_INSERT: Final = 5
"""Buckets split for each key inserted meanwhile: all are split before the table is 93 % full."""
_TOUCHED: Final = 1 << 20
"""Bytes of the doubled table that are made ready in one part: 0.2-1 ms."""
_TOUCHED_AN_EDIT: Final = 1 << 17
"""The same, by each call that edits."""
_TOUCHED_AN_INSERT: Final = 4_608
"""The same, for each key inserted meanwhile: all is ready before the table is two hundredths fuller."""
_LARGE: Final = 8 << 20
"""Bytes of a table that is made ready when it is made, before anybody waits for it."""
_HOPELESS_FILL: Final = 0.5
"""A table that refuses a key below this occupancy is built anew, with another salt."""
_BUILDS: Final = 24
_BUILD_FILL: Final = 0.85
"""Occupancy of a table that is built anew, at most."""
_SHRINK_AT: Final = 0.2
"""Occupancy below which a table that has grown is built anew at a smaller size."""
_SHRUNK_FILL: Final = 0.45
"""Occupancy after that, at most: far from both growing and shrinking."""
_SPLIT_WORK: Final = 4
"""Buckets that a view splits in the time of one group."""
_CLEAR_WORK: Final = 32
"""The same for buckets cleared of a worker."""


class TableWriter:
    """One table, and the one of twice the size that is being built beside it (blank when none is)."""

    def __init__(
        self,
        size: TableSize,
        table_id: int,
        salt: Callable[[], int],
        scratch: Scratch,
        out: U32,
        *,
        worker_slots: int,
        grow_at: float,
    ) -> None:
        """Start empty. `salt` draws salts; `scratch` and `out` (uint32[OUT_WORDS]) are the shard's."""
        self.rebuilds = 0
        """Times the table was built anew since the start."""
        self.growths = 0
        """Times it doubled in place since the start."""
        self.clearing: set[int] = set()
        """Slots of workers being withdrawn, all in one scan."""
        self._clear_at = 0
        """Bucket where that goes on."""
        self.reports: dict[int, OpenReport] = {}
        """Full reports being taken in, by the worker's slot."""
        self._id: Final = table_id
        self._salt = salt
        self._scratch = scratch
        self._out = out
        self._grow_at = grow_at
        self.shrinks = 0
        """Times it was built anew at a smaller size since the start."""
        self._least = size
        self._beside: BuildBeside | None = None
        self._next: tuple[Table, Touching] | None = None
        """The table that will double this one, while it is made ready."""
        self._leaving: list[NDArray[Any]] = []
        """Memory of tables that were replaced."""
        table = new_table(size, table_id, salt(), np.zeros((worker_slots, 2), np.uint64))
        size_in_memory = sum(array.nbytes for array in written_at_random(table))
        if size_in_memory > _LARGE:
            Touching(written_at_random(table)).touch(size_in_memory)
        self._layout = size.layout
        self._blank = blank_table(table)
        self.lay(table, self._blank)

    @property
    def entries(self) -> int:
        """Keys in the table."""
        return self.table.counts.item(ENTRIES)

    @property
    def slots(self) -> int:
        """Slots for keys."""
        return self.table.slot_entry.size

    @property
    def is_growing(self) -> bool:
        """A table of twice the size is being built."""
        return self.wide is not self._blank

    @property
    def is_busy(self) -> bool:
        """`step` has more to do."""
        waits = self.clearing or self._leaving or self._ended_report() is not None
        return bool(waits) or self.is_growing or self._beside is not None or self._next is not None

    def lay(self, table: Table, wide: Table) -> None:
        """Let these be the table and the one that doubles it; `edit` hands both to its kernel."""
        self.table, self.wide = table, wide
        self._arrays = (*table, *wide, *self._scratch)

    def edit(self, keys: U64, slot: int, tiers: NDArray[np.uint8], run: PatchRun) -> None:
        """Set one worker's tier at each key, in order; go on growing in proportion to what that filled."""
        while slot in self.clearing:
            self.clear_slice(run)
        if self._beside is not None:
            self._beside.note(keys)
        let_go(self._leaving)
        report = self.reports.get(slot)
        if report is not None:
            report.before_edit(self.table, keys)
        start: Int = 0
        stuck_at, refusals = start, 0
        before = self.entries
        while True:
            start, end, groups, status = edit_keys(
                *self._arrays, keys, tiers, start, self._id, slot, self._out, 0
            )
            run.add(self._out[:end], int(groups))
            if status == FULL:
                refusals = refusals + 1 if start == stuck_at else 1
                assert refusals < _BUILDS, "a key found no place in one table after another"
                stuck_at = start
                self._make_room(run)
            elif status == DONE:
                break
        if report is not None:
            report.after_edit(self.table, keys)
        entries = self.entries
        inserted = max(0, entries - before)
        if self.is_growing:
            self.grow(run, _SPLITS_AN_EDIT + _SPLITS_AN_INSERT * inserted)
        elif self._next is not None or entries > self._grow_at * self.slots:
            self._make_ready(run, _TOUCHED_AN_EDIT + _TOUCHED_AN_INSERT * inserted)
        elif self._beside is not None:
            self._go_on_beside(self._beside, run)

    def begin_clearing(self, slot: int) -> None:
        """Withdraw a worker everywhere, a slice at a time."""
        self.reports.pop(slot, None)
        if self.table.workers[slot, HELD]:
            self.clearing.add(slot)
            self._beside = None

    def begin_report(self, slot: int) -> None:
        """What a worker is edited to hold from now on is all that it holds, once `end_report` is called."""
        self.reports[slot] = OpenReport(slot, self.slots)
        self._beside = None

    def end_report(self, slot: int) -> None:
        """Withdraw the rest, a slice at a time."""
        self.reports[slot].has_ended = True
        self._close_report(slot)

    def _close_report(self, slot: int) -> None:
        if self.reports[slot].is_complete(self.table):
            del self.reports[slot]

    def _ended_report(self) -> int | None:
        """Slot of a worker whose report has ended."""
        for slot, report in self.reports.items():
            if report.has_ended:
                return slot
        return None

    def _sweep(self, slot: int, run: PatchRun) -> None:
        """Withdraw some of what a worker that has reported does not hold any more."""
        gone = self.reports[slot].some_unkept(self.table)
        if gone.size:
            self.edit(gone, slot, np.zeros(gone.size, np.uint8), run)
        self._close_report(slot)

    def clear_slice(self, run: PatchRun) -> None:
        """Withdraw the workers that are being cleared from some more buckets.

        Keys that moved to buckets behind the scan are met when it begins anew, and so are those of a worker
        that joined in its middle; a worker leaves it when it holds no key.
        """
        buckets = int(self.table.row[BUCKETS])
        first = self._clear_at % buckets
        count = min(_SLICE, buckets - first)
        slots = np.array(sorted(self.clearing), np.int64)
        end = clear_slice(self.table, self.wide, self._scratch, slots, first, count, self._id, self._out)
        run.add(self._out[:end], 1, count * slots.size // _CLEAR_WORK)
        self._clear_at = first + count
        self.clearing = {slot for slot in self.clearing if self.table.workers[slot, HELD]}

    def step(self, run: PatchRun) -> bool:
        """Do a part of what is left to do; whether anything was."""
        reported = self._ended_report()
        if self.clearing:
            self.clear_slice(run)
        elif reported is not None:
            self._sweep(reported, run)
        elif self.is_growing:
            self.grow(run)
        elif self._next is not None:
            self._make_ready(run, _TOUCHED)
        elif self._leaving:
            let_go(self._leaving)
        else:
            return self._shrink(run)
        return True

    def _shrink(self, run: PatchRun) -> bool:
        """Do a part of building a smaller table beside this one, if this one is nearly empty."""
        if self._beside is None:
            size = self._least
            while self.entries > _SHRUNK_FILL * size.slots:
                size = size.doubled
            full = self.entries >= _SHRINK_AT * self.slots
            if full or size.slots >= self.slots or self.reports:
                return False
            self._beside = BuildBeside(self.table, size, self._id, self._salt(), self._scratch)
        self._go_on_beside(self._beside, run)
        return True

    def _go_on_beside(self, beside: BuildBeside, run: PatchRun) -> None:
        state = beside.step()
        if state is BuildState.FAILED:
            self._beside = None
        elif state is BuildState.DONE:
            self.shrinks += 1
            self._replace(beside.table, run)

    def grow(self, run: PatchRun, buckets: int = _SLICE) -> None:
        """Split so many more buckets; after the last the doubled table takes this one's place."""
        assert self.is_growing
        while buckets > 0 and self.wide.counts[SPLIT] < self.table.row[BUCKETS]:
            some = min(buckets, _SLICE)
            end = grow_slice(self.table, self.wide, some, self._id, self._out)
            run.add(self._out[:end], 1, some // _SPLIT_WORK)
            buckets -= some
        if self.wide.counts[SPLIT] == self.table.row[BUCKETS]:
            self._swap(run)

    def load(self, keys: U64, slot: int, tiers: NDArray[np.uint8], run: PatchRun) -> None:
        """Do what `edit` does by building the table anew, at once: quicker when most of its keys change."""
        while self.clearing:
            self.clear_slice(run)
        report = self.reports.get(slot)
        if report is not None:
            report.before_edit(self.table, keys)
        all_of_them, values = merged_keys(self.table, keys, slot, tiers)
        new = self._built(all_of_them, values)
        held = ((values >> np.uint64(2 * slot)) & np.uint64(3)).astype(np.uint8)
        mine = held != 0
        self.table.workers[slot] = np.count_nonzero(mine), holdings_digest(all_of_them[mine], held[mine])
        self._replace(new, run)
        if report is not None:
            report.after_edit(self.table, keys)

    def restore(self, keys: U64, values: U64) -> None:
        """Hold these keys and values instead of what is there, which no view follows.

        Raises ProtocolError when a key is given twice; then nothing is changed.
        """
        new = self._built(keys, values)
        if int(new.counts[ENTRIES]) != keys.size:
            raise ProtocolError("a key is given twice", field="keys")
        everybody = int(np.bitwise_or.reduce(values, initial=np.uint64(0)))
        self.table.workers[:] = 0
        for slot in range(len(self.table.workers)):
            if everybody >> 2 * slot & 3:
                tiers = (values >> np.uint64(2 * slot) & np.uint64(3)).astype(np.uint8)
                held = tiers != 0
                digest = holdings_digest(keys[held], tiers[held])
                self.table.workers[slot] = np.count_nonzero(held), digest
        self._replace(new, PatchRun())

    def _make_room(self, run: PatchRun) -> None:
        """A key found no place: double at once, or build anew what refuses keys although it is half empty."""
        if not self.is_growing:
            if self.entries < _HOPELESS_FILL * self.slots:
                self._rebuild(run)
                return
            while not self.is_growing:
                self._make_ready(run, _TOUCHED)
        self.grow(run, int(self.table.row[BUCKETS]))

    def _make_ready(self, run: PatchRun, touched: int) -> None:
        """Make so many more bytes of the doubled table ready; after the last the growth begins."""
        if self._next is None:
            row = self.table.row
            size = size_of(row, self._layout).doubled
            assert size.is_addressable
            self._beside = None
            wide = new_table(size, int(row[TABLE]), int(row[SALT]), self.table.workers)
            self._next = wide, Touching((*written_at_random(wide), wide.edges))
        wide, touching = self._next
        if touching.touch(touched):
            self._next = None
            self.lay(self.table, wide)
            self._add_grow(GROW_BEGIN, run)

    def _swap(self, run: PatchRun) -> None:
        wide = self.wide
        self.lay(self.table, self._blank)
        if not finish_growth(wide, self._scratch, self.table):
            self._rebuild(run)
            return
        wide.counts[SPLIT] = 0
        self._leave(self.table)
        self.lay(wide, self._blank)
        for report in self.reports.values():
            report.table_doubled()
        self.growths += 1
        self._add_grow(GROW_SWAP, run)

    def _add_grow(self, step: int, run: PatchRun) -> None:
        run.add(np.array([4, 1, GROW | self._id << 8, step], np.uint32), 1)

    def _rebuild(self, run: PatchRun) -> None:
        """Build the table anew at once, with another salt; larger if it was rather full."""
        self._replace(self._built(*all_keys(self.table)), run)

    def _built(self, keys: U64, values: U64) -> Table:
        """A table of these keys, at least as large as this one."""
        size = size_of(self.table.row, self._layout)
        for build in range(_BUILDS):
            if build and build % 3 == 0:
                size = size.doubled
            while keys.size > _BUILD_FILL * size.slots:
                size = size.doubled
            self.rebuilds += 1
            new = BulkBuild(size, self._id, self._salt(), self.table.workers, self._scratch, keys, values)
            if new.run():
                return new.table
        raise AssertionError("a table half empty refused a key again and again")

    def _replace(self, new: Table, run: PatchRun) -> None:
        """Let a table that was built anew take this one's place."""
        for ever in (PINNED_EVER, MOVES, FLIPS):
            new.counts[ever] += self.table.counts[ever]
        for report in self.reports.values():
            report.table_replaced(self.table, new)
        for old in (self.table, self.wide):
            if old is not self._blank:
                self._leave(old)
        self._beside = self._next = None
        self.lay(new, self._blank)
        run.restart()

    def _leave(self, old: Table) -> None:
        """Let go of a table's memory part by part: to unmap it all takes tens of milliseconds at 1e7 keys."""
        self._leaving += (old.slot_key, old.slot_entry, old.edges, old.heads, old.free)
