"""When this edge owes its region's queue vector to the edges of other regions (paper 3.4)."""

from kvcompass.plan.model import Plan


class BroadcastSchedule:
    """Every `broadcast_period_ms` to each edge of another region, less those that just got a piggyback.

    A piggyback reaches one edge; a region with several is therefore broadcast to all the same, or the others
    would never hear.
    """

    def __init__(self, plan: Plan, region: str) -> None:
        self._region = region
        self._due_us: dict[str, int] = {}
        self.apply_plan(plan)

    def apply_plan(self, plan: Plan) -> None:
        """Tell the other regions' edges of this plan, those that are new at once."""
        self._period_us = plan.routing.broadcast_period_ms * 1000
        self._due_us = {
            edge.id: self._due_us.get(edge.id, 0) for edge in plan.edges if edge.region != self._region
        }
        edges_of: dict[str, list[str]] = {}
        for edge in plan.edges:
            edges_of.setdefault(edge.region, []).append(edge.id)
        self._only_edge = {region: edges[0] for region, edges in edges_of.items() if len(edges) == 1}

    @property
    def next_us(self) -> int | None:
        """When the next broadcast is due; None when there is nobody to tell."""
        return min(self._due_us.values(), default=None)

    def due(self, now_us: int) -> tuple[str, ...]:
        """Edges to tell now; each is next due a period from now."""
        due = tuple(edge_id for edge_id, due_us in self._due_us.items() if due_us <= now_us)
        for edge_id in due:
            self._due_us[edge_id] = now_us + self._period_us
        return due

    def piggybacked(self, region: str, now_us: int) -> None:
        """A response to `region` carried the vector."""
        edge_id = self._only_edge.get(region)
        if edge_id in self._due_us:
            self._due_us[edge_id] = now_us + self._period_us
