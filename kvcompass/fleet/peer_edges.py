"""The edges of other regions: the way to workers there, and which of them could not be reached lately."""

from kvcompass.plan.model import Plan


class PeerEdges:
    """Chooses an edge of a region. One that failed is avoided for `avoid_us`."""

    def __init__(self, plan: Plan, own_region: str, avoid_us: int) -> None:
        self._avoid_us = avoid_us
        self._own_region = own_region
        self._avoided_until_us: dict[str, int] = {}
        self._edges: dict[str, list[str]] = {}
        self.apply_plan(plan)

    def apply_plan(self, plan: Plan) -> None:
        """Choose among the edges of this plan. Those that failed lately are avoided on."""
        self._edges = {}
        for edge in plan.edges:
            if edge.region != self._own_region:
                self._edges.setdefault(edge.region, []).append(edge.id)

    def choose(self, region: str, now_us: int, tried: frozenset[str] = frozenset()) -> str | None:
        """The region's first untried edge in plan order; one that failed lately if there is no other."""
        untried = [edge_id for edge_id in self._edges.get(region, ()) if edge_id not in tried]
        well = (edge_id for edge_id in untried if not self._avoided(edge_id, now_us))
        return next(well, untried[0] if untried else None)

    def any_well(self, region: str, now_us: int) -> bool:
        """Whether some edge of the region has not failed lately."""
        return any(not self._avoided(edge_id, now_us) for edge_id in self._edges.get(region, ()))

    def failed(self, edge_id: str, now_us: int) -> None:
        """Avoid an edge for a while."""
        self._avoided_until_us[edge_id] = now_us + self._avoid_us

    def _avoided(self, edge_id: str, now_us: int) -> bool:
        return self._avoided_until_us.get(edge_id, now_us) > now_us
