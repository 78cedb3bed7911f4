"""An edge goes over to the next version of its plan, between two requests."""

from collections.abc import Callable
from dataclasses import dataclass

from kvcompass.index import IndexView, LookupUnit, WorkerMap, index_shape
from kvcompass.levels.query_plan import query_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.places import given_again
from kvcompass.plan.seats import seated
from kvcompass.roles.courses import Courses
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from services.edge.fleet.load_broadcaster import LoadBroadcaster
from services.edge.fleet.load_service import LoadService
from services.edge.fleet.prompt_service import PromptService
from services.edge.forwarding.hops import Hops
from services.edge.listeners.explain import Explainer
from services.edge.listeners.peer import PeerListener
from services.edge.readiness import Readiness
from services.edge.requests.prompts import PromptReader
from services.runtime.grpc_transport import Dialer


@dataclass(frozen=True, slots=True)
class EdgePlanSwitch:
    """`services.runtime.plan_desk.PlannedComponent` of one edge: everything of it that goes by the plan."""

    edge_id: str
    role: EdgeRole
    courses: Courses
    view: IndexView
    relays: tuple[ViewRelay, ...]
    choices: tuple[UpstreamChoice, ...]
    readiness: Readiness
    reader: PromptReader
    explainer: Explainer
    hops: Hops
    peer: PeerListener
    loads: LoadService
    prompts: PromptService
    broadcaster: LoadBroadcaster
    dialer: Dialer
    foresee: Callable[[Plan], None]
    """Makes the metric series of a plan."""

    def check_plan(self, plan: Plan) -> None:
        """Errors: KVCompassError: its index or queries cannot be made.

        SettingsError: an address may not be dialled in plain text.
        """
        index_shape(plan)
        query_plan(plan)
        for edge in plan.edges:
            self.dialer.component(edge.peer_address)
            if edge.region != self.role.region:
                self.dialer.component(edge.grpc_address)
        for source in self.choices[0].edges_of(plan):
            self.dialer.component(source.address)

    async def apply_plan(self, plan: Plan) -> None:
        """Decides by it from now on, without a pause between two parts. Requests under way end as they began.

        An edge that the plan does not have any more says that it is not ready, and serves whoever comes.
        """
        fleet = self.role.fleet
        fleet_plan = fleet.plan
        seats, queries = seated(fleet.plan, plan, fleet.free_seats()), query_plan(plan)
        self.view.apply_shape(index_shape(plan))
        origin = plan.region_index(self.role.region)
        lookup = LookupUnit(self.view, queries, WorkerMap.of_plan(seats), origin)
        self.hops.apply_plan(plan)
        self.role.apply_plan(seats, queries.rungs, lookup)
        self.courses.apply_plan(seats)
        self.reader.apply_plan(plan, queries.rungs)
        self.explainer.apply_plan(queries)
        self.peer.apply_plan(seats)
        self.loads.apply_plan(plan)
        self.prompts.apply_plan(plan)
        self.broadcaster.apply_plan(plan)
        again = [(worker.table, worker.slot) for worker in given_again(fleet_plan, plan)]
        neighbours = [edge.id for edge in plan.edges if edge.region == self.role.region]
        for relay, choice in zip(self.relays, self.choices, strict=True):
            relay.apply_plan(plan.plan_version, neighbours)
            relay.places_given_again(again)
            choice.apply_plan(plan)
        self.readiness.left = all(edge.id != self.edge_id for edge in plan.edges)
        self.foresee(plan)

    async def settle_plan(self) -> None:
        """Nothing is kept of the version before but what requests under way need."""
