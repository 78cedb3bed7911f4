"""Since when a worker cannot speak to a unit, and what stands between a unit and a view cannot pass on."""

from collections.abc import Callable
from typing import Final

from simulator.convergence.fleet import Fleet
from simulator.convergence.process import Process

_NEVER: Final = -1


class SignsOfLife:
    """Looks at processes, engines and links whenever one of them fails or mends, and now and then."""

    def __init__(self, fleet: Fleet, impaired: Callable[[], bool]) -> None:
        """`impaired`: links lose, delay or pass nothing."""
        self._fleet = fleet
        self._impaired = impaired
        shards = range(fleet.shape.plan.shards)
        self._spoke_us = [[_NEVER for _ in shards] for _ in fleet.workers]
        self._down_us: dict[Process, int] = {}
        self._silent_us: dict[Process, int] = {}
        self._incarnations: dict[Process, tuple[int, int]] = {}
        self.impaired_us = _NEVER
        """Until when links were impaired last; at present, while they are."""

    def note(self) -> None:
        """Call it right before and right after something changes."""
        fleet, now_us = self._fleet, self._fleet.now_us
        if self._impaired():
            self.impaired_us = now_us
        for process in (*fleet.unit_processes, *(edge.process for edge in fleet.edges)):
            runs = process.is_up and not process.is_paused
            if not runs:
                self._down_us[process] = now_us
            if not runs or process.is_cut:
                self._silent_us[process] = now_us
            if self._incarnations.get(process, (0, 0))[0] != process.incarnation:
                self._incarnations[process] = process.incarnation, now_us
        for worker, spoke_us in zip(fleet.workers, self._spoke_us, strict=True):
            process = worker.process
            if worker.engine.answers and process.is_up and not process.is_paused and not process.is_cut:
                for shard, unit in enumerate(fleet.unit_processes):
                    if not unit.is_cut:
                        spoke_us[shard] = now_us

    def spoke_us(self, worker: int, shard: int) -> int:
        """When a worker's engine and agent last ran, and neither agent nor unit was cut off."""
        return self._spoke_us[worker][shard]

    def down_us(self, process: Process) -> int:
        """When a unit or an edge last did not run."""
        return self._down_us.get(process, _NEVER)

    def silent_us(self, process: Process) -> int:
        """When a unit or an edge last did not run, or was cut off."""
        return self._silent_us.get(process, _NEVER)

    def started_us(self, process: Process) -> int:
        """When the present incarnation of a unit or an edge began."""
        return self._incarnations.get(process, (0, 0))[1]
