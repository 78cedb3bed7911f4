"""How units begin: empty, or with the file that their predecessor left; and what each then promises."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kvcompass.index import index_shape
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.unit_snapshot import restore_tables
from kvcompass.roles.unit_snapshot_bytes import SnapshotRefusedError
from simulator.clock import Clock
from simulator.convergence.disk import UnitFile
from simulator.convergence.history import History, Place, WatchedTables
from simulator.convergence.shape import Shape
from simulator.convergence.trace import Trace
from simulator.streams import random_stream


class UnitBirths:
    """Makes the units of a run, and keeps their files."""

    def __init__(self, shape: Shape, seed: int, trace: Trace, clock: Clock, epochs: Iterator[int]) -> None:
        self.histories: Final[dict[int, History]] = {}
        """By epoch of a unit."""
        self.counts: Final[Counter[str]] = Counter()
        """What became of files."""
        self._shape = shape
        self._seed = seed
        self._trace = trace
        self._clock = clock
        self._epochs = epochs
        self._files = [
            UnitFile(random_stream(seed, f"disk of {shard}")) for shard in range(shape.plan.shards)
        ]
        self._places = {worker.id: (worker.table, worker.slot) for worker in shape.workers}

    def save(self, shard: int, unit: MaintenanceUnit) -> None:
        """A unit writes its file."""
        self._files[shard].write(unit)

    def unit(self, shard: int, plan: Plan, now_us: int, name: str) -> tuple[MaintenanceUnit, WatchedTables]:
        """A unit that begins with its file, if that is sound; else empty. `name`: for the trace."""
        data = self._files[shard].read() if self._shape.save_us else None
        if data is not None:
            try:
                return self._begin(shard, plan, now_us, data)
            except SnapshotRefusedError as error:
                self._trace.note(now_us, name, f"refuses its file: {error}")
                self.counts["files refused"] += 1
                self._files[shard].put_aside()
        return self._begin(shard, plan, now_us, None)

    def _begin(
        self, shard: int, plan: Plan, now_us: int, data: bytes | None
    ) -> tuple[MaintenanceUnit, WatchedTables]:
        layout, bounds = self._shape.layout, self._shape.bounds
        epoch, unit_id = next(self._epochs), plan.units[shard].id
        tables = WatchedTables(index_shape(plan), shard, random_seed=(self._seed << 20) + epoch)
        history = History()

        def may_lack() -> set[Place]:
            """Those that have had their time: a version that shortens leases shortens it."""
            runs = self._shape.last_plan if unit.plan_version > plan.plan_version else plan
            lease_ms = min(plan.routing.lease_ms, runs.routing.lease_ms)
            waited = self._clock.now_us >= now_us + 1_000 * lease_ms * bounds.settle_leases
            return {self._places[worker] for worker in unit.awaited_workers()} if waited else set()

        tables.watch(history, lambda: unit.sequence, lambda: unit.settled, may_lack)
        restored = None
        if data is not None:
            restored = restore_tables(data, plan, unit_id, layout=layout, tables=tables)
            epoch = restored.epoch_after(epoch)
            self.counts["units restored"] += 1
            # Whose lease had ended is not in the file, and views learn from it that they are to forget.
            history.cleared |= self.histories[restored.epoch].cleared
        unit = MaintenanceUnit(
            plan,
            unit_id,
            epoch=epoch,
            layout=layout,
            tables=tables,
            now_us=now_us,
            bounds=bounds,
            restored=restored,
        )
        self.histories[epoch] = history
        return unit, tables
