"""The product as a router: every process of the plan on the clock."""

from collections.abc import Sequence
from typing import Final

from kvcompass.engine_events import EngineEvent
from kvcompass.index import IndexView, LookupUnit, ShardTables, WorkerMap, index_shape
from kvcompass.keys import namespace
from kvcompass.levels import query_plan
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Edge, SharingGroup
from kvcompass.plan.model import MaintenanceUnit as PlannedUnit
from kvcompass.roles.backoff import Backoff
from kvcompass.roles.courses import Courses
from kvcompass.roles.desk_bounds import DeskBounds
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.roles.worker_agent import WorkerAgent
from kvcompass.routing.names import PolicyName
from simulator.errors import SimulationError
from simulator.impairment import Impairment
from simulator.product.agent_node import AgentNode
from simulator.product.edge_node import EdgeNode
from simulator.product.impaired_stream import ImpairedStream
from simulator.product.index_feed import IndexFeed, OwnStream
from simulator.product.journey import REFUSED, Journey
from simulator.product.periods import ATTEMPTS, AVOID_US, PENDING_KEYS
from simulator.product.report_stream import ReportStream
from simulator.product.unit_log import LoggedStream, UnitLog
from simulator.product.unit_node import UnitNode
from simulator.request import Request
from simulator.router import Site
from simulator.streams import random_stream

_EPOCH: Final = 1
"""Of every process: none restarts."""
_NOBODY_FOLLOWS: Final = DeskBounds(log_groups=1, subscriptions=0)
"""An edge: what it would pass on is not kept."""


class ProductRouter:
    """Every edge, unit and agent of a plan. A `Router`; clients of a region take its edges in turn.

    The fleet has been up for a while when the run begins: agents are registered, views loaded, loads known.
    """

    def __init__(self, site: Site, *, policy: PolicyName, faithful: bool, impairment: Impairment) -> None:
        plan = site.fleet.plan
        self.name = policy
        self._site = site
        self._plan = plan
        self._layout = layout_fields(plan)
        self._faithful = faithful or impairment.of_patches or not _steady(site)
        self._impairment = impairment
        self._group = _only_group(site)
        self._journeys: dict[int, Journey] = {}
        """Requests under way, by id."""
        self.units: Final = [self._unit(unit) for unit in sorted(plan.units, key=lambda unit: unit.shard)]
        self._logs = [UnitLog(site, unit) for unit in self.units]
        self.edges: Final = [self._edge(edge, policy) for edge in plan.edges]
        by_id = {edge.role.edge_id: edge for edge in self.edges}
        for edge in self.edges:
            edge.peers = by_id
        self.agents: Final = [self._agent(worker) for worker in range(len(plan.workers))]
        self._edges_of = [[e for e in self.edges if e.region == r] for r in range(site.fleet.regions)]
        self._turn = [0] * site.fleet.regions
        self._begin()

    # --- Router -----------------------------------------------------------------------------------

    def arrive(self, request: Request) -> None:
        """A client asks the next edge of its region."""
        edges = self._edges_of[request.region]
        turn = self._turn[request.region]
        self._turn[request.region] = turn + 1
        edges[turn % len(edges)].arrive(request)

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """For the worker's agent."""
        self.agents[worker].cache_events(events)

    def first_token(self, request: Request, worker: int) -> None:
        """For the request's journey."""
        self._journeys[request.id].first_token(worker)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """For the request's journey."""
        self._journeys[request.id].served(worker, cached_tokens)

    def refused(self, request: Request, worker: int) -> None:
        """For the request's journey: a worker of its own region has a full queue."""
        self._journeys[request.id].failed(REFUSED)

    def erred(self, request: Request, worker: int) -> None:
        """For the request's journey."""
        self._journeys[request.id].erred(worker)

    def lost(self, request: Request, worker: int) -> None:
        """For the request's journey."""
        self._journeys[request.id].lost()

    def broken_laws(self) -> list[str]:
        """After a run no edge waits for anything."""
        waiting = {edge.role.edge_id: len(edge.role.fleet.in_flight) for edge in self.edges}
        broken = [f"{edge}: {count} requests in flight" for edge, count in waiting.items() if count]
        if self._journeys:
            broken.append(f"{len(self._journeys)} requests on their way")
        return broken

    # --- inside -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Agents first: a unit gives out nothing before it knows what every worker holds."""
        site = self._site
        for worker, agent in enumerate(self.agents):
            site.begin(site.fleet.region_of(worker), agent.start)
        site.begin(0, self._agents_are_up)

    def _agents_are_up(self) -> None:
        site = self._site
        for unit in self.units:
            site.begin(unit.region, unit.start)
        for edge in self.edges:
            for feed in edge.feeds:
                site.begin(feed.unit.region, feed.open)
        for edge in self.edges:
            site.begin(edge.region, edge.start)

    def _unit(self, planned: PlannedUnit) -> UnitNode:
        plan, site = self._plan, self._site
        seed = random_stream(site.seed, f"tables {planned.id}").getrandbits(63)
        tables = ShardTables(index_shape(plan), planned.shard, random_seed=seed)
        unit = MaintenanceUnit(
            plan, planned.id, epoch=_EPOCH, layout=self._layout, tables=tables, now_us=site.now_us
        )
        return UnitNode(site, unit, tables, plan.region_index(planned.region))

    def _agent(self, worker: int) -> AgentNode:
        plan, site = self._plan, self._site
        planned, region = plan.workers[worker], site.fleet.region_of(worker)
        agent = WorkerAgent(plan, planned.id, _EPOCH)
        streams = [
            ReportStream(
                site,
                agent,
                UnitReport(
                    agent,
                    shard,
                    self._layout,
                    plan.plan_version,
                    lease_ms=plan.routing.lease_ms,
                    pending_limit=PENDING_KEYS,
                ),
                unit,
                region,
                Backoff(random_stream(site.seed, f"{planned.id} to shard {shard}")),
            )
            for shard, unit in enumerate(self.units)
        ]
        edges = [edge for edge in self.edges if edge.region == region]
        return AgentNode(site, agent, worker, streams, edges, random_stream(site.seed, f"polls {planned.id}"))

    def _edge(self, planned: Edge, policy: PolicyName) -> EdgeNode:
        plan, region = self._plan, self._plan.region_index(planned.region)
        view, queries = IndexView(index_shape(plan)), query_plan(plan)
        lookup = LookupUnit(view, queries, WorkerMap.of_plan(plan), region)
        role = EdgeRole(plan, planned.id, lookup, epoch=_EPOCH, policy=policy)
        handshake = Handshake(planned.id, _EPOCH, PROTOCOL_VERSION, plan.plan_version, self._layout)
        followers = [IndexFollower(shard, view, handshake) for shard in range(plan.shards)]
        return EdgeNode(
            self._site,
            role,
            Courses(plan, role, attempts=ATTEMPTS, avoid_us=AVOID_US),
            view,
            [self._feed(follower, view, planned.id, region) for follower in followers],
            self._journeys,
            region=region,
            namespace=namespace(plan.model, self._group.salt),
            rungs=queries.rungs,
            sharing_group=self._group.id,
        )

    def _feed(self, follower: IndexFollower, view: IndexView, edge_id: str, region: int) -> IndexFeed:
        site, unit = self._site, self.units[follower.shard]
        if self._faithful:
            feed = self._own_feed(follower, view, edge_id)
            if self._impairment.of_patches:
                losses = random_stream(site.seed, f"losses {edge_id} shard {follower.shard}")
                return ImpairedStream(site, feed, unit, region, self._impairment, losses)
            return OwnStream(site, feed, unit, region)
        travel_us = site.steady_us(unit.region, region)
        assert travel_us is not None, "links are steady"
        return LoggedStream(site, follower, self._logs[follower.shard], region, travel_us)

    def _own_feed(self, follower: IndexFollower, view: IndexView, edge_id: str) -> ShardFeed:
        plan, shard = self._plan, follower.shard
        relay = ViewRelay(
            follower,
            view,
            edge_id=edge_id,
            layout=self._layout,
            plan_version=plan.plan_version,
            bounds=_NOBODY_FOLLOWS,
        )
        jitter = random_stream(self._site.seed, f"{edge_id} to shard {shard}")
        return ShardFeed(relay, UpstreamChoice(plan, edge_id, shard), jitter)


def _steady(site: Site) -> bool:
    regions = range(site.fleet.regions)
    return all(site.steady_us(a, b) is not None for a in regions for b in regions)


def _only_group(site: Site) -> SharingGroup:
    plan = site.fleet.plan
    if len(plan.sharing_groups) != 1:
        raise SimulationError(
            "requests name no sharing group, so a simulated plan must have exactly one", field="sharing_group"
        )
    for worker, config in enumerate(site.fleet.engines):
        if config.page_size != plan.model.block_size:
            raise SimulationError(
                f"the engine of {plan.workers[worker].id} has pages of {config.page_size} tokens, the plan's"
                f" blocks have {plan.model.block_size}",
                field="block_size",
            )
    return plan.sharing_groups[0]
