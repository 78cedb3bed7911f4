"""All processes of a run: engines, agents, units, edges, and how each starts, dies and starts again."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Final

from kvcompass.index import IndexView, index_shape
from kvcompass.keys import shards_of
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.backoff import Backoff
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.roles.worker_agent import WorkerAgent
from kvcompass.wan import Link
from simulator.clock import Clock
from simulator.convergence.agent import FollowedEngine
from simulator.convergence.engine import BLOCK, Engine
from simulator.convergence.fabric import Fabric
from simulator.convergence.history import WatchedTables
from simulator.convergence.nodes import EdgeProcess, WorkerNode
from simulator.convergence.process import Process
from simulator.convergence.shape import JITTER, Shape
from simulator.convergence.stream import Stream
from simulator.convergence.trace import Trace
from simulator.convergence.unit_births import UnitBirths
from simulator.convergence.view_feed import SubscribeServer, ViewFeed
from simulator.convergence.view_server import ViewServer
from simulator.network import Network
from simulator.product.periods import KEEPALIVE_US, PENDING_KEYS
from simulator.product.report_stream import ReportStream
from simulator.product.unit_node import UnitNode
from simulator.streams import random_stream

_ANCHORS: Final = 3
"""Chains of blocks that the first worker never gives up."""


def _lengths(plan: Plan) -> set[int]:
    return {int(length) for length in registered_lengths(plan)}


class Fleet:
    """Owns everything that runs. Nothing has started at first."""

    def __init__(self, shape: Shape, seed: int, trace: Trace) -> None:
        plan = shape.plan
        self.shape: Final = shape
        self.seed: Final = seed
        self.trace: Final = trace
        self.clock: Final = Clock()
        self.network: Final = Network(
            self.clock, len(plan.regions), self.plain_link, seed, given_up_us=KEEPALIVE_US
        )
        self.fabric: Final = Fabric(
            self.clock, self.network, trace, random_stream(seed, "fabric"), lossy=shape.lossy
        )
        self._epochs = count(1)
        self.births: Final = UnitBirths(shape, seed, trace, self.clock, self._epochs)
        self.plans: Final[dict[str, Plan]] = {}
        """The plan file of each process, by its name; where there is none it is the first version."""
        self.workers: Final = [
            WorkerNode(
                Process(f"agent-{number}", plan.region_index(worker.region)),
                Engine(shape.chains, shape.ring_batches[number]),
                worker.id,
            )
            for number, worker in enumerate(shape.workers)
        ]
        self.workers[-1].engine.is_up = shape.heir is None
        anchors = [block for chain in shape.chains[:_ANCHORS] for block in chain]
        self.workers[0].engine.kept = {block.number: block for block in anchors}
        both = set.intersection(*(_lengths(each) for each in (plan, shape.last_plan)))
        keys = {block.key for block in anchors if block.key is not None and block.depth * BLOCK in both}
        self.anchors: Final = [
            [k for k in keys if shards_of([k], plan.shards) == [s]] for s in range(plan.shards)
        ]
        """By shard: keys that the first worker never gives up, once it has them."""
        self.unit_processes: Final = [
            Process(f"unit-{unit.shard}", plan.region_index(unit.region)) for unit in plan.units
        ]
        self.units: Final = [self._unit(shard) for shard in range(plan.shards)]
        self.edges: Final = [self._edge(edge.id, plan.region_index(edge.region)) for edge in plan.edges]

    @property
    def now_us(self) -> int:
        """Virtual time."""
        return self.clock.now_us

    @property
    def victims(self) -> list[Process]:
        """All processes but the engines and the first worker's agent, which only the network fails."""
        return [
            *self.unit_processes,
            *(edge.process for edge in self.edges),
            *(worker.process for worker in self.workers[1 : len(self.shape.plan.workers)]),
        ]

    def plain_link(self, source: int, target: int) -> Link:
        """The link between two regions without faults, but for what every network does."""
        way_ms = self.shape.plan.wan_ms[source][target]
        return Link(way_ms, jitter_ms=JITTER * way_ms)

    def streams(self) -> Iterator[tuple[Stream, Process, Process]]:
        """Open streams of the processes that run: who opened it and whom it goes to."""
        edges = {id(server): edge.process for edge in self.edges for server in edge.served}
        for worker in self.workers:
            if worker.followed is not None:
                for shard, stream in enumerate(worker.followed.streams):
                    if stream.is_open:
                        yield stream, worker.process, self.unit_processes[shard]
        for edge in self.edges:
            for shard, feed in enumerate(edge.feeds):
                for end in (*feed.ends.values(), *feed.probes.values()):
                    if end.is_open:
                        yield end, edge.process, edges.get(id(end.server), self.unit_processes[shard])

    # --- starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything starts at once, empty."""
        for shard in range(self.shape.plan.shards):
            self.start_unit(shard)
        for number in range(len(self.shape.plan.workers)):
            self.start_agent(number)
        for number in range(len(self.edges)):
            self.start_edge(number)

    def start_unit(self, shard: int) -> None:
        """A unit starts, knowing nothing."""
        process, node = self.unit_processes[shard], self.units[shard]
        if process.incarnation:
            node.unit, node.tables = self._new_unit(shard)
        process.boot()
        self.fabric.own(process, node, address=True)
        self.trace.note(self.now_us, process.name, f"starts in epoch {node.unit.epoch}")
        self.fabric.act(process, node.restart, node.unit, node.tables)
        if self.shape.save_us:
            self.fabric.act(process, self.fabric.after, self.shape.save_us, self._save, shard)

    def start_agent(self, number: int) -> None:
        """A worker's agent starts, knowing nothing."""
        worker, shape = self.workers[number], self.shape
        process = worker.process
        plan = self.plan_of(process)
        if all(planned.id != worker.planned for planned in plan.workers):
            worker.has_left = True  # its settings name a worker that its plan has not: it does not start
            worker.engine.kill()
            return
        process.boot()
        agent = WorkerAgent(plan, worker.planned, next(self._epochs))
        worker.plan_version = plan.plan_version
        name = f"{process.name} {process.incarnation}"
        streams = [
            ReportStream(
                self.fabric,
                agent,
                UnitReport(
                    agent,
                    shard,
                    shape.layout,
                    plan.plan_version,
                    lease_ms=plan.routing.lease_ms,
                    pending_limit=PENDING_KEYS,
                    chunk_keys=shape.chunk_keys,
                ),
                unit,
                process.region,
                Backoff(random_stream(self.seed, f"{name} to {shard}")),
                plans_change=shape.plans_change,
            )
            for shard, unit in enumerate(self.units)
        ]
        worker.followed = FollowedEngine(
            self.fabric,
            process,
            agent,
            worker.engine,
            streams,
            random_stream(self.seed, name),
            partial(next, self._epochs),
        )
        self.fabric.own(process, worker.followed, *streams)
        self.trace.note(self.now_us, process.name, f"starts in epoch {agent.epoch}")
        self.fabric.act(process, worker.followed.start)

    def start_edge(self, number: int) -> None:
        """An edge starts, knowing nothing."""
        edge = self.edges[number]
        process = edge.process
        plan = self.plan_of(process)
        process.boot()
        handshake = Handshake(
            process.name, next(self._epochs), PROTOCOL_VERSION, plan.plan_version, self.shape.layout
        )
        edge.view = view = IndexView(index_shape(plan))
        name = f"{process.name} {process.incarnation}"
        edge.feeds = []
        for shard, served in enumerate(edge.served):
            relay = ViewRelay(
                IndexFollower(shard, view, handshake),
                view,
                edge_id=process.name,
                layout=self.shape.layout,
                plan_version=plan.plan_version,
                bounds=self.shape.relay_bounds,
            )
            served.restart(relay)
            choice = UpstreamChoice(
                plan, process.name, shard, bootstrap=self.shape.bootstrap, upstream=self.shape.upstream
            )
            feed = ViewFeed(
                self.fabric,
                ShardFeed(relay, choice, random_stream(self.seed, f"{name} to {shard}")),
                served,
                self._servers(shard),
                process.region,
            )
            self.fabric.own(process, *feed.ends.values(), *feed.probes.values())
            edge.feeds.append(feed)
        self.trace.note(self.now_us, process.name, f"starts in epoch {handshake.epoch}")
        for feed in edge.feeds:
            self.fabric.act(process, feed.dial)

    # --- dying ------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """`kill -9`: its memory is gone, and its kernel closes its connections."""
        self.trace.note(self.now_us, process.name, "is killed")
        for stream, client, server in self.streams():
            if process in (client, server):
                self.fabric.close(stream, process)
        process.die()
        for worker in self.workers:
            if worker.process is process:
                worker.engine.listener = worker.followed = None
        for edge in self.edges:
            if edge.process is process:
                edge.view, edge.feeds = None, []

    def start_again(self, process: Process) -> None:
        """A process that was killed starts anew."""
        for shard, unit in enumerate(self.unit_processes):
            if unit is process:
                self.start_unit(shard)
        for number, worker in enumerate(self.workers):
            if worker.process is process and not worker.has_left:
                self.start_agent(number)
        for number, edge in enumerate(self.edges):
            if edge.process is process:
                self.start_edge(number)

    def leave(self, worker: WorkerNode) -> None:
        """A worker is in the plan no more: its agent ends, and its engine."""
        worker.has_left = True
        self.kill(worker.process)
        worker.engine.kill()

    def plan_of(self, process: Process) -> Plan:
        """What a process starts with."""
        return self.plans.get(process.name, self.shape.plan)

    # --- inside -----------------------------------------------------------------------------------

    def _edge(self, name: str, region: int) -> EdgeProcess:
        process = Process(name, region)
        shards, changes = range(self.shape.plan.shards), self.shape.plans_change
        served = [ViewServer(self.fabric, region, plans_change=changes) for _ in shards]
        self.fabric.own(process, *served, address=True)
        return EdgeProcess(process, served)

    def _servers(self, shard: int) -> dict[str, SubscribeServer]:
        """Of a shard, by id in the plan."""
        servers: dict[str, SubscribeServer] = {edge.process.name: edge.served[shard] for edge in self.edges}
        servers[self.shape.plan.units[shard].id] = self.units[shard]
        return servers

    def _unit(self, shard: int) -> UnitNode:
        unit, tables = self._new_unit(shard)
        region, changes = self.unit_processes[shard].region, self.shape.plans_change
        return UnitNode(self.fabric, unit, tables, region, plans_change=changes)

    def _new_unit(self, shard: int) -> tuple[MaintenanceUnit, WatchedTables]:
        process = self.unit_processes[shard]
        return self.births.unit(shard, self.plan_of(process), self.now_us, process.name)

    def _save(self, shard: int) -> None:
        self.births.save(shard, self.units[shard].unit)
        self.fabric.after(self.shape.save_us, self._save, shard)
