"""A unit's own snapshot: what it writes to its disk, and how a unit begins with it instead of empty.

No I/O here: bytes go out in parts and come in as a whole. The shell that keeps the file is
`services/maintenance`; the simulator takes and restores snapshots at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kvcompass.errors import LayoutMismatchError, ProtocolError
from kvcompass.keys.shards import shards_of
from kvcompass.plan.layout import check_layout
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.unit_snapshot_bytes import (
    Entries,
    RestoreOutcome,
    SavedWorker,
    SnapshotHead,
    SnapshotRefusedError,
    corrupt,
    head_of,
)

_ROOM: Final = 4
"""A worker may hold its new keys beside its old ones while it reports, and workers may have left the plan."""
_BYTES_AN_ENTRY: Final = 16
_HEAD_BYTES: Final = 16 << 20


def snapshot_bytes_most(plan: Plan) -> int:
    """The largest snapshot that a unit of this plan restores, bytes."""
    entries = _ROOM * len(plan.workers) * plan.worker_shard_entries_max
    return _HEAD_BYTES + _BYTES_AN_ENTRY * entries


def snapshot_of(unit: MaintenanceUnit) -> bytes | None:
    """A settled unit's snapshot, at once; None while it has not settled. For the simulator and tests."""
    capture = unit.capture()
    if capture is None:
        return None
    while not capture.is_whole:
        capture.step()
    return b"".join(capture.parts())


def restore_tables(
    data: bytes, plan: Plan, unit_id: str, *, layout: Mapping[str, str], tables: ShardWriter
) -> RestoredFrom:
    """Fill empty tables with what a snapshot holds of the plan's workers. Costs 0.5 us an entry, at once.

    A worker that has left the plan, or has another place in it, is left out.

    Args:
        data: A whole snapshot.
        plan: The unit's plan now.
        unit_id: Which unit of it.
        layout: `layout_fields(plan, digests)`.
        tables: Empty. They are of no more use after a refusal.

    Raises:
        SnapshotRefusedError: Its outcome and message say why.
    """
    shard = next(unit.shard for unit in plan.units if unit.id == unit_id)
    head, saved_tables = head_of(data)
    _check_fits(head, plan, shard, layout)
    places = {worker.id: (worker.table, worker.slot) for worker in plan.workers}
    kept = [saved for saved in head.workers if places.get(saved.id) == (saved.table, saved.slot)]
    for table, entries in _kept_entries(saved_tables, kept):
        _restore(tables, table, entries, plan.shards, shard)
    for saved in kept:
        held = tables.held(saved.table, saved.slot)
        if held != (saved.entries, saved.holdings_digest):
            raise corrupt(f"{saved.id} has {held[0]} of {saved.entries} keys in it, or others")
    return RestoredFrom(head.epoch, head.sequence, frozenset(saved.id for saved in kept if saved.entries))


def _check_fits(head: SnapshotHead, plan: Plan, shard: int, layout: Mapping[str, str]) -> None:
    if head.shard != shard:
        raise SnapshotRefusedError(
            RestoreOutcome.SHARD,
            f"it is of shard {head.shard}, and this unit has shard {shard}: give each unit a path of its own",
        )
    try:
        check_layout(layout, head.layout)
    except LayoutMismatchError as error:
        raise SnapshotRefusedError(
            RestoreOutcome.LAYOUT,
            f"{error.field} is {layout.get(error.field)!r} here and {head.layout.get(error.field)!r} in it:"
            " its keys are of no use here; correct the plan, or let agents refill the unit",
        ) from error
    if head.plan_version > plan.plan_version + 1:
        raise SnapshotRefusedError(
            RestoreOutcome.NEWER_PLAN,
            f"it was written under plan version {head.plan_version}, and this unit has"
            f" {plan.plan_version}: give the unit the fleet's plan",
        )


def _kept_entries(tables: Sequence[Entries], workers: Sequence[SavedWorker]) -> Iterator[tuple[int, Entries]]:
    """By table, the keys that some of these workers hold, and their values without anybody else's fields."""
    for table, (keys, values) in enumerate(tables):
        fields = sum({3 << 2 * saved.slot for saved in workers if saved.table == table})
        if not fields:
            continue
        masked = values.astype(np.uint64) & np.uint64(fields)
        held = masked != 0
        yield table, (keys[held].astype(np.uint64), masked[held])


def _restore(tables: ShardWriter, table: int, entries: Entries, shards: int, shard: int) -> None:
    keys, values = entries
    if not keys.size:
        return
    # Shards are ranges of the key space: the least key and the largest tell for all between.
    if shards_of((int(keys.min()), int(keys.max())), shards) != [shard, shard]:
        raise corrupt("a key belongs to another shard")
    if (values & values >> np.uint64(1) & np.uint64(0x5555_5555_5555_5555)).any():
        raise corrupt("a tier does not exist")
    try:
        tables.restore(table, keys, values)
    except ProtocolError as error:
        raise corrupt(str(error)) from error
