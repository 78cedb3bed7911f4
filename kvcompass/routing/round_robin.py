"""Takes turns over all live workers of the world, whatever they hold: the plain balancer to compare with."""

from kvcompass.fleet.view import FleetView
from kvcompass.index.lookup_unit import Lookup
from kvcompass.routing.candidates import CandidateSets
from kvcompass.routing.decision import Decision, NoWorker, Reason
from kvcompass.routing.explanation import decision_for, explained
from kvcompass.routing.request import RoutingRequest
from kvcompass.routing.rotation import Rotation
from kvcompass.routing.weighing import weigh
from kvcompass.score import JointScore


class RoundRobinPolicy:
    """The next candidate in the plan's order. The score is computed for the record only."""

    def __init__(self, name: str, fleet: FleetView, rotation_start: int, lookup: Lookup | None) -> None:
        self.name = name
        self._fleet = fleet
        self._candidates = CandidateSets(fleet, own_region=False)
        self._rotation = Rotation(rotation_start)
        self._score = JointScore(fleet.score_inputs, fleet.plan.routing, lookup)

    @property
    def turn(self) -> int:
        """Whose turn it is among equals."""
        return self._rotation.turn

    def decide(self, request: RoutingRequest, now_us: int, *, explain: bool = False) -> Decision | NoWorker:
        """Choose; all that changes is whose turn it is."""
        fleet = self._fleet
        fleet.refresh(now_us)
        candidates = self._candidates.of(request.sharing_group, request.exclude)
        if isinstance(candidates, NoWorker):
            return candidates
        worker = self._rotation.first(candidates.standings.candidate)
        weighed = weigh(self._score, request, candidates, 0)
        decision = decision_for(worker, Reason.ROUND_ROBIN, self.name, fleet, request, weighed)
        if explain:
            return decision._replace(candidates=explained(fleet, request, candidates, weighed, now_us))
        self._rotation.passed(worker)
        return decision
