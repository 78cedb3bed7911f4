"""Copies of a unit's tables while they are made: nothing may be edited until they are whole."""

from collections.abc import Mapping, Sequence

from kvcompass.plan.model import Worker
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.unit_capture import UnitCapture
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.unit_plan import UnitPlan
from kvcompass.roles.unit_snapshot_bytes import SavedWorker, SnapshotHead


class UnitCopies:
    """Owns the copy for the unit's own disk, and takes turns with the desk's, which is for subscribers."""

    def __init__(
        self,
        plan: UnitPlan,
        tables: ShardWriter,
        desk: UnitDesk,
        *,
        shard: int,
        epoch: int,
        layout: Mapping[str, str],
    ) -> None:
        """`shard`, `epoch`, `layout`: of the unit, for what a copy says of itself."""
        self._plan = plan
        self._tables = tables
        self._desk = desk
        self._shard = shard
        self._epoch = epoch
        self._layout = layout
        self.capture: UnitCapture | None = None
        """None when none is made; one that is whole is let go of by the next `step`."""

    @property
    def under_way(self) -> bool:
        """`step` has more to do."""
        return self._desk.is_copying or self.capture is not None

    def begin(self, workers: Sequence[Worker]) -> UnitCapture | None:
        """Begins a copy of all that the tables hold of these workers; None while another is being made."""
        if self.capture is not None and not self.capture.is_whole:
            return None
        self.capture = UnitCapture(
            SnapshotHead(
                shard=self._shard,
                epoch=self._epoch,
                sequence=self._desk.sequence,
                plan_version=self._plan.version,
                value_bits=self._plan.now.index.value_bits,
                layout=dict(self._layout),
                workers=tuple(
                    SavedWorker(each.id, each.table, each.slot, *self._tables.held(each.table, each.slot))
                    for each in workers
                ),
            ),
            self._tables.freeze_entries([(each.table, each.slot) for each in workers]),
        )
        return self.capture

    def step(self) -> bool:
        """Goes on copying, about 1 ms; False when nothing was left to copy, and the tables may be edited."""
        if self._desk.is_copying:
            self._desk.copy_part()
            return True
        if self.capture is None:
            return False
        if self.capture.is_whole:
            self.capture = None
            return False
        self.capture.step()
        return True
