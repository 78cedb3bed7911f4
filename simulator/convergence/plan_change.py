"""A version of the plan, brought to a fleet that runs: `kvcompass plan apply`, to whoever can be reached."""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kvcompass.errors import KVCompassError
from kvcompass.index import index_shape
from kvcompass.plan.model import Plan
from kvcompass.plan.places import given_again
from kvcompass.plan.rollout import STEPS, Component, Phase
from simulator.clock import Priority
from simulator.convergence.fleet import Fleet
from simulator.convergence.nodes import EdgeProcess, WorkerNode
from simulator.convergence.process import Process
from simulator.product.unit_node import UnitNode

AGAIN_US: Final = 300_000
"""Until those who did not acknowledge a step are asked again."""


class Witness(Protocol):
    """Who looks on as components take a version."""

    def unit_takes(self, node: UnitNode, plan: Plan) -> None:
        """A unit is about to take it."""

    def edge_took(self, edge: EdgeProcess) -> None:
        """An edge has just taken it."""


class PlanChange:
    """Brings the next version to every component; each step once all of the step before have taken theirs."""

    def __init__(self, fleet: Fleet, plan: Plan, witness: Witness, on_done: Callable[[], None]) -> None:
        self._fleet = fleet
        self._plan = plan
        self._witness = witness
        self._on_done = on_done
        self._step = 0
        self._taken: set[str] = set()
        """Components that have taken the present step."""

    def go_on(self) -> None:
        """Ask whoever has not taken the present step; begin the next if all have."""
        fleet = self._fleet
        component, phase = STEPS[self._step]
        asked = self._asked(component, phase)
        for process, take in asked:
            if process.name not in self._taken and process.is_reached and not self._is_refused(process):
                fleet.trace.note(fleet.now_us, process.name, f"plan {self._plan.plan_version}: {phase}")
                before, fleet.plans[process.name] = fleet.plan_of(process), self._plan
                fleet.fabric.act(process, take, before)
                self._taken.add(process.name)
        if all(process.name in self._taken for process, _ in asked):
            self._taken.clear()
            self._step += 1
        if self._step == len(STEPS):
            self._on_done()
        else:
            fleet.clock.at(fleet.now_us + AGAIN_US, Priority.ENGINE, self.go_on)

    def _asked(self, component: Component, phase: Phase) -> list[tuple[Process, Callable[[Plan], None]]]:
        """Who has a part in a step, and what it does; a new incarnation starts with what it took."""
        fleet, prepares = self._fleet, phase is Phase.PREPARE
        match component:
            case Component.UNIT:
                return [
                    (process, partial(self._unit, node, prepares))
                    for process, node in zip(fleet.unit_processes, fleet.units, strict=True)
                ]
            case Component.AGENT:
                return [
                    (worker.process, partial(self._agent, worker, prepares))
                    for worker in fleet.workers
                    if worker.process.incarnation and not worker.has_left
                ]
            case Component.EDGE:
                return [(edge.process, partial(self._edge, edge)) for edge in fleet.edges]

    def _is_refused(self, process: Process) -> bool:
        """A unit that does not go by the version yet looks again whether places that it gives are free."""
        for unit, node in zip(self._fleet.unit_processes, self._fleet.units, strict=True):
            if unit is process and node.unit.plan_version != self._plan.plan_version:
                try:
                    node.unit.check_plan(self._plan)
                except KVCompassError:
                    return True
        return False

    def _unit(self, node: UnitNode, prepares: bool, _before: Plan) -> None:
        if node.unit.plan_version != self._plan.plan_version:
            self._witness.unit_takes(node, self._plan)
            node.unit.apply_plan(self._plan)
        if not prepares:
            node.unit.settle_plan()
        node.changed()

    def _agent(self, worker: WorkerNode, prepares: bool, _before: Plan) -> None:
        followed = worker.followed
        assert followed is not None
        if worker.planned not in {each.id for each in self._plan.workers}:
            if not prepares:
                self._fleet.leave(worker)
            return
        if worker.plan_version != self._plan.plan_version:
            worker.plan_version = self._plan.plan_version
            followed.apply_plan(self._plan)
        if not prepares:
            followed.settle_plan()

    def _edge(self, edge: EdgeProcess, before: Plan) -> None:
        plan = self._plan
        again = [(worker.table, worker.slot) for worker in given_again(before, plan)]
        assert edge.view is not None
        edge.view.apply_shape(index_shape(plan))
        for feed in edge.feeds:
            feed.relay.apply_plan(plan.plan_version)
            feed.relay.places_given_again(again)
            feed.choice.apply_plan(plan)
        self._witness.edge_took(edge)
