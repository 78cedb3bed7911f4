"""The orderly end of a unit: streams first, then the last of its own snapshots."""

import grpc.aio

from kvcompass.roles.maintenance_unit import MaintenanceUnit
from services.maintenance.snapshot_keeper import SnapshotKeeper


async def drain(
    unit: MaintenanceUnit,
    server: grpc.aio.Server,
    streams_s: float,
    keeper: SnapshotKeeper | None,
    snapshot_s: float,
) -> None:
    """Ends the streams within `streams_s`, then writes what the unit holds within `snapshot_s`.

    The unit knows of it first: agents that are turned away from here on must not count as gone. Its ticks
    have to go on meanwhile, for they copy what is written.
    """
    unit.drain()
    await server.stop(streams_s)
    if keeper is not None:
        await keeper.write_last(snapshot_s)
