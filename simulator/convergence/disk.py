"""The file in which a unit keeps its own snapshot: `services.maintenance` writes it whole, or not at all."""

from random import Random
from typing import Final

from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.unit_snapshot import snapshot_of

_DAMAGED: Final = 0.15
"""Share of starts that find a byte of the file changed."""


class UnitFile:
    """One unit's. Outlives its processes."""

    def __init__(self, random: Random) -> None:
        """`random`: of what disks do."""
        self._random = random
        self._data: bytes | None = None
        self._sequence = (0, 0)

    def write(self, unit: MaintenanceUnit) -> None:
        """Keep what a unit holds, if anything has changed and it has settled."""
        now = unit.epoch, unit.sequence
        if now == self._sequence:
            return
        data = snapshot_of(unit)
        if data is not None:
            self._data, self._sequence = data, now

    def read(self) -> bytes | None:
        """What a unit finds there when it starts; None when there is no file."""
        data = self._data
        if data is None or self._random.random() >= _DAMAGED:
            return data
        at = self._random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]

    def put_aside(self) -> None:
        """The file was refused."""
        self._data = None
