"""A dead or silent worker is gone from units and views in time: counted from its own last sign of life.

Each fault has a time of its own here, whatever else fails later and elsewhere. Who is failing itself is not
held to it, nor is who cannot be reached, until it has had the same time since (docs/convergence.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from simulator.convergence.bound import bound_terms
from simulator.convergence.fabric import LATE_US
from simulator.convergence.fleet import Fleet
from simulator.convergence.nodes import EdgeProcess
from simulator.convergence.places import has_place
from simulator.convergence.signs_of_life import SignsOfLife
from simulator.convergence.view_feed import UpstreamEnd
from simulator.product.periods import KEEPALIVE_US


@dataclass(slots=True)
class Heard:
    """What a feed has heard of the stream that it follows."""

    end: UpstreamEnd
    attempt: int
    first_us: int
    last_us: int


class LeaseLaw:
    """Says what breaks it now."""

    def __init__(self, fleet: Fleet, signs: SignsOfLife, looked_us: int) -> None:
        """`looked_us`: from one look at signs to the next, where nothing was known to change."""
        term = bound_terms(fleet.shape)
        self._fleet = fleet
        self._signs = signs
        self._lease_us: Final = term["lease"] + term["trip"] + looked_us
        self._settle_us: Final = term["settle"]
        self._late_us: Final = (LATE_US if fleet.shape.lossy else KEEPALIVE_US) + 2 * term["trip"]
        """What was sent while links were impaired comes so late, at most."""
        self._passed_us: Final = term["trip"] + term["flush"]
        self._watermark_us: Final = term["watermark"]

    def at_units(self) -> Iterator[tuple[str, str]]:
        """Units that have keys of who is dead, and what is wrong."""
        fleet = self._fleet
        for shard, (process, node) in enumerate(zip(fleet.unit_processes, fleet.units, strict=True)):
            if not process.is_up or process.is_paused:
                continue
            for number, planned in enumerate(fleet.shape.workers):
                if planned.table >= node.tables.shape.tables or fleet.now_us <= self._gone_us(number, shard):
                    continue
                keys, _ = node.tables.held(planned.table, planned.slot)
                if keys and has_place(fleet, number, process):
                    yield process.name, f"has {keys} keys of {planned.id}, {self._silence(number, shard)}"

    def at_view(self, edge: EdgeProcess, shard: int, heard: Heard | None) -> Iterator[str]:
        """What is wrong with a shard of a view, where it follows somebody and nothing is in the way."""
        fleet, view = self._fleet, edge.view
        connected_us = self._connected_us(edge, shard, heard)
        if view is None or connected_us is None:
            return
        for number, planned in enumerate(fleet.shape.workers):
            gone_us = max(self._gone_us(number, shard), connected_us) + self._hops(heard) * self._passed_us
            held = fleet.now_us > gone_us and view.has_fields(shard, planned.table, planned.slot)
            if held and has_place(fleet, number, edge.process):
                yield f"has keys of {planned.id} in shard {shard}, {self._silence(number, shard)}"

    def _gone_us(self, worker: int, shard: int) -> int:
        """Until when a unit may have a worker's keys."""
        signs, unit = self._signs, self._fleet.unit_processes[shard]
        spoke_us = signs.spoke_us(worker, shard)
        return self._lease_us + max(
            spoke_us,
            min(spoke_us, signs.impaired_us) + self._late_us,
            signs.down_us(unit),
            signs.started_us(unit) + self._settle_us,
        )

    def _connected_us(self, edge: EdgeProcess, shard: int, heard: Heard | None) -> int | None:
        """Since when patches get to a view, at the latest; None: not for certain."""
        fleet, signs, now_us = self._fleet, self._signs, self._fleet.now_us
        if heard is None or not heard.end.is_open or heard.end.attempt != heard.attempt:
            return None
        way = [edge.process, fleet.unit_processes[shard]]
        way += [other.process for other in fleet.edges if heard.end.server is other.served[shard]]
        silent_us = max(map(signs.silent_us, way))
        failed_us = max(silent_us, signs.impaired_us + self._late_us)
        since_us = max(failed_us, now_us - self._watermark_us - self._hops(heard) * self._passed_us)
        if heard.last_us <= since_us + self._passed_us:
            return None  # nothing that was sent since has come: the stream may be a broken one
        return max(heard.first_us, failed_us + self._watermark_us)

    def _hops(self, heard: Heard | None) -> int:
        at_unit = heard is not None and heard.end.server in self._fleet.units
        return 1 if at_unit else 2

    def _silence(self, worker: int, shard: int) -> str:
        silent_us = self._fleet.now_us - self._signs.spoke_us(worker, shard)
        return f"which has been dead or silent for {silent_us / 1e6:.2f} s"
