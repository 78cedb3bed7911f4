"""A place that is given again is nobody else's, as long as nobody can take the one for the other."""

from collections.abc import Iterator
from functools import cached_property

from kvcompass.plan.model import Plan
from simulator.convergence.fleet import Fleet
from simulator.convergence.history import Promises
from simulator.convergence.nodes import EdgeProcess
from simulator.convergence.places import has_place
from simulator.product.unit_node import UnitNode


class PlaceLaw:
    """Says what breaks it now."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def at_taking(self, node: UnitNode, plan: Plan) -> Iterator[tuple[str, str]]:
        """When a unit takes the version with the heir, neither it nor who follows it has the other's keys."""
        fleet, heir = self._fleet, self._fleet.shape.heir
        if heir is None or heir not in plan.workers:
            return
        shard = fleet.units.index(node)
        name = fleet.unit_processes[shard].name
        keys = 0
        if heir.table < node.tables.shape.tables:
            keys, _ = node.tables.held(heir.table, heir.slot)
        if keys:
            yield name, f"gives a place again that has {keys} keys"
        followers = node.unit.subscriber_lags()
        for edge in fleet.edges:
            if edge.process.name in followers and self._is_followed(edge, shard):
                assert edge.view is not None
                if edge.view.has_fields(shard, heir.table, heir.slot):
                    yield name, f"gives a place again, and {edge.process.name}, which follows, has keys of it"

    def at_view(self, edge: EdgeProcess, shard: int, promises: Promises) -> Iterator[str]:
        """An edge that takes what it has at the place for the heir's has what the heir's engine once held.

        `promises`: what the view has.
        """
        fleet, heir = self._fleet, self._fleet.shape.heir
        if heir is None or not edge.feeds[shard].follower.loaded:
            return
        number = len(fleet.workers) - 1
        if not has_place(fleet, number, edge.process):
            return
        ever = {self._keys.get(block) for block in fleet.workers[number].engine.ever}
        mistaken = promises.tiers.get((heir.table, heir.slot), {}).keys() - ever
        if mistaken:
            yield f"takes {len(mistaken)} keys of shard {shard} for the heir's, which never held them"

    def _is_followed(self, edge: EdgeProcess, shard: int) -> bool:
        """The edge's present stream is open at the unit, as far as both know."""
        if not edge.process.is_up:
            return False
        feed = edge.feeds[shard]
        end = feed.ends[self._fleet.shape.plan.units[shard].id]
        return feed.server is end.server and end.is_open and end.sent_attempt == end.attempt

    @cached_property
    def _keys(self) -> dict[int, int | None]:
        return {block.number: block.key for chain in self._fleet.shape.chains for block in chain}
