"""How a unit begins with the file that its predecessor left."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvcompass.index import ShardTables
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.unit_snapshot_bytes import RestoreOutcome, SnapshotRefusedError
from services.runtime.disk import LocalDisk
from services.runtime.logs import get_logger
from services.runtime.whole_file import read_whole, remove_leftovers


@dataclass(frozen=True, slots=True)
class Start:
    """The tables that a unit starts with."""

    outcome: RestoreOutcome
    tables: ShardTables
    restored: RestoredFrom | None
    size: int = 0
    """Bytes of the file that was restored."""
    reason: str = ""
    """Why it was not."""
    kept_as: str = ""
    """Where a refused file is."""


def start_from_file(
    path: Path,
    bytes_most: int,
    new_tables: Callable[[], ShardTables],
    restore: Callable[[bytes, ShardTables], RestoredFrom],
) -> Start:
    """Restores the file if it can be, else puts it aside as `.refused`; either way there are tables.

    Takes 0.5 us an entry: not for an event loop.
    """
    with suppress(OSError):
        remove_leftovers(LocalDisk(), path)
    tables = new_tables()
    try:
        data = _content(path, bytes_most)
        return Start(RestoreOutcome.RESTORED, tables, restore(data, tables), size=len(data))
    except FileNotFoundError:
        return Start(RestoreOutcome.MISSING, tables, None)
    except OSError as error:
        outcome, reason = RestoreOutcome.UNREADABLE, f"it cannot be read: {error.strerror}; see to its mode"
    except SnapshotRefusedError as error:
        outcome, reason = error.outcome, str(error)
    return Start(outcome, new_tables(), None, reason=reason, kept_as=_put_aside(path))


def log_start(start: Start, path: Path) -> None:
    """One line of log that says what became of the file."""
    log = get_logger("snapshot")
    if start.restored is not None:
        log.info(
            "restored the unit's own snapshot: it is served at once, and agents correct what differs",
            path=str(path),
            entries=start.tables.entries,
            bytes=start.size,
            workers=sorted(start.restored.workers),
            epoch=start.restored.epoch,
            sequence=start.restored.sequence,
        )
    elif start.outcome is RestoreOutcome.MISSING:
        log.info("no snapshot of the unit's own yet: agents refill it", path=str(path))
    else:
        log.error(
            "the unit's own snapshot was REFUSED: the unit starts empty, agents refill it",
            path=str(path),
            outcome=start.outcome.value,
            reason=start.reason,
            kept_as=start.kept_as or "it could not be moved: the next writing replaces it",
        )


def _content(path: Path, bytes_most: int) -> bytes:
    data = read_whole(path, bytes_most)
    if data is None:
        raise SnapshotRefusedError(
            RestoreOutcome.TOO_LARGE,
            f"it is larger than {bytes_most} bytes, which is more than the plan's workers can hold: correct"
            " the path or index.worker_entries_max",
        )
    return data


def _put_aside(path: Path) -> str:
    """The refused file's new name; empty when it has to stay. An older refused file is replaced."""
    aside = path.with_name(path.name + ".refused")
    disk = LocalDisk()
    try:
        disk.replace(path, aside)
        disk.sync_folder(path.parent)
    except OSError:
        return ""
    return str(aside)
