"""The policy of the product, and of a region that stands alone: the worker with the least joint score."""

from kvcompass.fleet.view import FleetView
from kvcompass.index.lookup_unit import Lookup
from kvcompass.routing.candidates import CandidateSets
from kvcompass.routing.decision import Decision, NoWorker
from kvcompass.routing.explanation import decision_for, explained
from kvcompass.routing.reasons import reason_for
from kvcompass.routing.request import RoutingRequest
from kvcompass.routing.rotation import Rotation
from kvcompass.routing.weighing import weigh
from kvcompass.score import JointScore


class JointScorePolicy:
    """Least joint score (paper 3.4) over the workers within reach; ties are taken in turns."""

    def __init__(
        self,
        name: str,
        fleet: FleetView,
        rotation_start: int,
        lookup: Lookup | None,
        *,
        own_region: bool,
    ) -> None:
        self.name = name
        self._fleet = fleet
        self._candidates = CandidateSets(fleet, own_region=own_region)
        self._rotation = Rotation(rotation_start)
        self._score = JointScore(fleet.score_inputs, fleet.plan.routing, lookup)

    @property
    def turn(self) -> int:
        """Whose turn it is among equals."""
        return self._rotation.turn

    def decide(self, request: RoutingRequest, now_us: int, *, explain: bool = False) -> Decision | NoWorker:
        """Choose; all that changes is whose turn it is among equals."""
        fleet = self._fleet
        fleet.refresh(now_us)
        candidates = self._candidates.of(request.sharing_group, request.exclude)
        if isinstance(candidates, NoWorker):
            return candidates
        weighed = weigh(self._score, request, candidates, self._rotation.turn)
        reason = reason_for(fleet, request, candidates, weighed)
        decision = decision_for(weighed.worker, reason, self.name, fleet, request, weighed)
        if explain:
            return decision._replace(candidates=explained(fleet, request, candidates, weighed, now_us))
        self._rotation.passed(weighed.worker)
        return decision
