"""Settings of a maintenance unit."""

import math
import os
from pathlib import Path
from typing import Final

import msgspec

from kvcompass.roles.unit_bounds import UnitBounds
from services.runtime.addresses import split_address
from services.runtime.plain_text import is_loopback
from services.runtime.settings import CommonSettings, SettingsError, check_range, resolve_path


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of what the unit keeps for subscribers, and its periods."""

    log_groups: int = 65_536
    """Patch groups kept for edges that fall behind; at 2,000 changes a second, half a minute of partition."""
    log_bytes: int = 16 << 20
    """Bytes of the same; at least 1 MiB: each edge behind more of them than fit is sent a snapshot."""
    subscriptions: int = 1_024
    """Edges served at once; one more is refused."""
    watermark_period_ms: int = 1_000
    """An edge compares digests at this period. It calls its view stale after 3 s of silence whatever this is,
    so at most 1,000."""
    flush_ms: float = 3.0
    """Changes are collected for so long before a message; a message costs 55-100 us at each end. 0.1 to
    100: an edge's view is older by it."""
    hello_timeout_s: float = 10.0
    """For a stream's first message: several 300 ms round trips. 1 to 60."""
    drain_s: float = 1.0
    """After SIGTERM, for what is being sent."""


class SnapshotSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The unit's own snapshot on disk: with it a restart serves at once, and agents correct what differs."""

    path: str
    """The file, in a folder that outlives the process and that nobody else writes. `{id}` stands for the
    unit's id. 12 bytes a key with tables of 16 workers, 16 with 32; twice that on the disk while it is
    written, and 16 bytes a key of memory."""
    period_s: float = 30.0
    """Between two writings; what changed since costs a full report of the workers concerned. A shard of 1e6
    keys is 12 MB, so half a megabyte a second. Nothing is written while nothing changes."""
    drain_s: float = 10.0
    """After SIGTERM, for the last one."""


class MaintenanceSettings(CommonSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TOML file a process."""

    id: str
    """This unit's id in the plan."""
    listen: str = ""
    """host:port to bind instead of the plan's `address` (behind a proxy, or all interfaces)."""
    random_seed: int | None = None
    """Salts the tables' hashes. Drawn at each start when absent, so that nobody can aim at a bucket."""
    fault_switches: bool = False
    """Whether the operations listener, on loopback only, takes `PUT /faults/patch_loss/SHARE`: for drills."""
    bounds: Bounds = Bounds()
    snapshot: SnapshotSettings | None = None
    """Absent: nothing is kept, and a unit that restarts is refilled by agents."""


_RANGES: Final = {
    "log_bytes": (1 << 20, math.inf),
    "watermark_period_ms": (1, 1_000),
    "flush_ms": (0.1, 100),
    "hello_timeout_s": (1, 60),
}


def unit_bounds(settings: MaintenanceSettings) -> UnitBounds:
    """The role's bounds. Errors: SettingsError when a value is out of its range."""
    bounds = settings.bounds
    check_range("bounds", bounds, _RANGES)
    return UnitBounds(
        log_groups=bounds.log_groups,
        log_bytes=bounds.log_bytes,
        subscriptions=bounds.subscriptions,
        watermark_period_us=bounds.watermark_period_ms * 1_000,
    )


def snapshot_path(settings: MaintenanceSettings, settings_file: Path) -> Path | None:
    """Where the unit's own snapshot is; None when it keeps none.

    Errors: SettingsError when a time is out of its range, or no file can be there.
    """
    section = settings.snapshot
    if section is None:
        return None
    check_range("snapshot", section)
    path = resolve_path(settings_file, section.path.replace("{id}", settings.id))
    fault = _fault_of(path)
    if fault:
        raise SettingsError(fault, field="snapshot.path")
    return path


def _fault_of(path: Path) -> str:
    """Why no file can be written there; empty when one can."""
    if "\0" in str(path):
        return f"{str(path)!r} is no path"
    try:
        if path.is_dir():
            return f"{path} is a folder: name a file in it"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}: make it"
    except OSError as error:
        return f"{path} cannot be: {error.strerror}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"{path.parent} cannot be written to: a new file is made there each time"
    return ""


def check_switches(settings: MaintenanceSettings) -> None:
    """Errors: SettingsError when strangers could reach the fault switches."""
    if settings.fault_switches and not is_loopback(split_address(settings.ops_address)[0]):
        raise SettingsError(
            f"with them, whoever reaches {settings.ops_address} may break the shard's streams: "
            "leave them off, or put ops_address on loopback",
            field="fault_switches",
        )
