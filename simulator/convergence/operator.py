"""Who applies plans: one version after the other, until the place of who left is another worker's."""

from collections import Counter
from dataclasses import replace
from typing import Final

from kvcompass.errors import KVCompassError
from kvcompass.plan.model import Plan, Worker
from simulator.clock import Priority
from simulator.convergence.fleet import Fleet
from simulator.convergence.plan_change import AGAIN_US, PlanChange, Witness


class Operator:
    """Goes over to the next version; where that has a worker no more, tries to give its place to the heir.

    As decision 0210 has it: all units are asked first. A version that comes too early is applied without the
    heir; while somebody has not acknowledged that the place is empty, it is tried again.
    """

    def __init__(self, fleet: Fleet, witness: Witness) -> None:
        self.is_done = False
        """The fleet goes by the last version there is."""
        self.counts: Final[Counter[str]] = Counter()
        self._fleet = fleet
        self._witness = witness
        self._plan = fleet.shape.plan
        """The newest version that has been applied, or is being applied."""

    def start(self) -> None:
        """Apply the first change."""
        assert self._fleet.shape.next_plan is not None
        self._apply(self._fleet.shape.next_plan)

    def _apply(self, plan: Plan) -> None:
        self._plan = plan
        self._join(plan)
        PlanChange(self._fleet, plan, self._witness, self._applied).go_on()

    def _applied(self) -> None:
        heir = self._fleet.shape.heir
        if heir is None or heir in self._plan.workers:
            self.is_done = True
        else:
            self._give(heir)

    def _give(self, heir: Worker) -> None:
        fleet, plan = self._fleet, self._plan
        after = replace(plan, plan_version=plan.plan_version + 1)
        given = replace(after, workers=(*plan.workers, heir))
        if not all(process.is_reached for process in fleet.unit_processes):
            fleet.clock.at(fleet.now_us + AGAIN_US, Priority.ENGINE, self._give, heir)
        elif not any(self._refuses(shard, given) for shard in range(len(fleet.units))):
            self.counts["places given again"] += 1
            # What units start from comes first: one that starts meanwhile has been asked.
            fleet.plans.update({process.name: given for process in fleet.unit_processes})
            self._apply(given)
        elif any(self._rests(shard, given, heir) for shard in range(len(fleet.units))):
            self.counts["places that rest"] += 1
            self._apply(after)
        else:
            self.counts["places not acknowledged"] += 1
            fleet.clock.at(fleet.now_us + AGAIN_US, Priority.ENGINE, self._give, heir)

    def _join(self, plan: Plan) -> None:
        """Workers that the version has for the first time: their engines and agents start with it."""
        planned = {worker.id for worker in plan.workers}
        for number, worker in enumerate(self._fleet.workers):
            if worker.planned in planned and not worker.process.incarnation:
                self._fleet.plans[worker.process.name] = plan
                worker.engine.is_up = True
                self._fleet.start_agent(number)

    def _refuses(self, shard: int, plan: Plan) -> bool:
        try:
            self._fleet.units[shard].unit.check_plan(plan)
        except KVCompassError:
            return True
        return False

    def _rests(self, shard: int, plan: Plan, heir: Worker) -> bool:
        """Only a later version may give the place, as `/health` says."""
        return any(
            (place.table, place.slot) == (heir.table, heir.slot) and place.from_version > plan.plan_version
            for place in self._fleet.units[shard].unit.vacant_places()
        )
