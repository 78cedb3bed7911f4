"""Workers come and go at the same places while units, edges and edges behind edges see it late or never.

The roles are the product's, the tables dictionaries. A plan is brought as `kvcompass plan apply` brings it:
all units are asked, then it goes unit, edge, unit, one component at a time, with anything in between; some
may be left out (`--without`) and follow later, by themselves or with a restart. After every step every field
that an edge may read is held against who ever held the key.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from kvcompass.errors import KVCompassError
from kvcompass.keys.shards import keys_of
from kvcompass.plan.assign import assign_workers
from kvcompass.plan.change import plan_changes
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.places import given_again
from kvcompass.plan.sections import UNASSIGNED
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Handshake,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
)
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_snapshot import snapshot_of
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.roles.worker_source import AgentSession
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import replication_plan
from tests.models.replication_table import DictTables, DictView
from tests.models.unit_snapshots import restored_unit

SHARDS = 2
SLOTS = 3
"""Of a table: so few that places are given again all the time."""
EDGES = ("e-0", "e-1", "e-2")
"""The last ones follow the first, or the units."""
UNDER_WAY = 3


class WrongNameError(AssertionError):
    """An edge may read a key as a worker's that never held it."""


def first_plan() -> Plan:
    plan = replication_plan(shards=SHARDS)
    return replace(plan, index=replace(plan.index, slots_given=(2, 1)))


@dataclass(eq=False)
class Stream:
    server: "UnitNode | Shard"
    subscription: Subscription | None
    queue: deque[UnitToEdge] = field(default_factory=deque)

    def fill(self, now_us: int) -> None:
        if self.subscription is None or len(self.queue) >= UNDER_WAY:
            return
        batch = self.server.role.take(self.subscription, now_us)
        self.queue.extend(batch)
        if any(isinstance(message, Unavailable | Refusal) for message in batch):
            self.server_closes()

    def server_closes(self) -> None:
        if self.subscription is not None:
            self.server.role.unsubscribe(self.subscription)
            self.server.streams.remove(self)
            self.subscription = None


class UnitNode:
    """A unit, its agents' streams, and its disk."""

    def __init__(self, world: "World", shard: int) -> None:
        self.world, self.shard = world, shard
        self.plan = world.plans[0]
        self.settled = True
        self.epoch = 0
        self.streams: list[Stream] = []
        self.saved: bytes | None = None
        self.start(restore=False)

    def start(self, *, restore: bool) -> None:
        self.epoch += 10
        for stream in list(self.streams):
            stream.subscription = None
        self.streams.clear()
        self.sessions: dict[str, tuple[TwinAgent, AgentSession]] = {}
        self.settled = True
        name, layout, now_us = f"unit-{self.shard}", self.world.layout, self.world.now_us
        if restore and self.saved is not None:
            self.role = restored_unit(
                self.saved,
                self.plan,
                name,
                epoch=self.epoch,
                layout=layout,
                tables=DictTables(),
                now_us=now_us,
            )
        else:
            self.role = MaintenanceUnit(
                self.plan, name, epoch=self.epoch, layout=layout, tables=DictTables(), now_us=now_us
            )

    def refuses(self, plan: Plan) -> str:
        try:
            self.role.check_plan(plan)
        except KVCompassError as error:
            return str(error)
        return ""

    def prepare(self, plan: Plan) -> None:
        self.role.apply_plan(plan)
        self.plan, self.settled = plan, False

    def settle(self) -> None:
        self.role.settle_plan()
        self.settled = True

    def report(self, worker_id: str, tiers: dict[int, int]) -> None:
        """The worker's agent connects if it must, and is taken in or not."""
        if worker_id not in self.sessions:
            self.world.epochs += 1
            agent = TwinAgent(worker_id, self.world.layout, self.plan.plan_version, self.world.epochs)
            opened = self.role.agent_connected(agent.hello(), self.world.now_us)
            if isinstance(opened, Refusal):
                return
            self.sessions[worker_id] = agent, opened[0]
            if opened[1].full_report_wanted:
                for message in agent.full_report():
                    self.role.on_agent_message(opened[0], message, self.world.now_us)
        agent, session = self.sessions[worker_id]
        for message in (agent.renewal(), agent.edit(tiers)):
            answers = self.role.on_agent_message(session, message, self.world.now_us)
            if any(isinstance(answer, Refusal) for answer in answers):
                del self.sessions[worker_id]
                return
        while self.role.work(session, self.world.now_us):
            pass


class Shard:
    """One shard at an edge."""

    def __init__(self, edge: "EdgeNode", shard: int) -> None:
        world = edge.world
        self.edge = edge
        self.view = DictView()
        handshake = Handshake(edge.name, edge.epoch, PROTOCOL_VERSION, edge.plan.plan_version, world.layout)
        self.follower = IndexFollower(shard, self.view, handshake)
        self.role = ViewRelay(
            self.follower,
            self.view,
            edge_id=edge.name,
            layout=world.layout,
            plan_version=edge.plan.plan_version,
        )
        self.shard = shard
        self.stream: Stream | None = None
        self.streams: list[Stream] = []

    def pump(self, *, through_edge: bool) -> None:
        """Reads one message, or opens a stream."""
        world = self.edge.world
        if self.stream is None:
            server = world.edges[0].shards[self.shard] if through_edge else world.units[self.shard]
            self.role.follows(an_edge=through_edge)
            self.stream = _opened(server, self.follower.subscribe_request(), world.now_us)
        self.stream.fill(world.now_us)
        self.role.copy_part()
        if self.role.is_copying:
            return
        if not self.stream.queue:
            if self.stream.subscription is None:
                self.hang_up(ResubscribeReason.LOST)
            return
        ended = self.role.on_message(self.stream.queue.popleft(), world.now_us)
        if ended is not None:
            self.hang_up(ended.reason)
        elif self.stream.subscription is not None:
            self.stream.server.role.acknowledged(self.stream.subscription, self.role.acknowledgement())

    def hang_up(self, reason: ResubscribeReason = ResubscribeReason.LOST) -> None:
        if self.stream is not None:
            self.stream.server_closes()
            self.stream = None
            self.follower.stream_ended(reason)

    def lose(self) -> None:
        """The server has noticed that the stream is gone, and the edge has not: the rest still arrives."""
        if self.stream is not None:
            self.stream.server_closes()


def _opened(server: "UnitNode | Shard", request: SubscribeRequest, now_us: int) -> Stream:
    opened = server.role.subscribe(request, now_us)
    if not isinstance(opened, Subscription):
        return Stream(server, None, deque([opened]))
    stream = Stream(server, opened)
    server.streams.append(stream)
    return stream


class EdgeNode:
    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.plan = world.plans[0]
        self.epoch = 0
        self.shards: list[Shard] = []
        self.start()

    def start(self) -> None:
        for shard in self.shards:
            shard.hang_up()
            for stream in list(shard.streams):
                stream.server_closes()
        self.epoch += 1
        self.shards = [Shard(self, shard) for shard in range(SHARDS)]

    def take(self, plan: Plan) -> None:
        """What `services.edge.plan_switch` does."""
        places = [(worker.table, worker.slot) for worker in given_again(self.plan, plan)]
        self.plan = plan
        for shard in self.shards:
            shard.role.apply_plan(plan.plan_version)
            shard.role.places_given_again(places)


class World:
    """All of it. Every method is a step; `check` follows each."""

    def __init__(self) -> None:
        self.plans = [first_plan()]
        """By version, from 1: those that all units that were asked could take."""
        self.layout = layout_fields(self.plans[0])
        self.now_us = 0
        self.epochs = 0
        self.held: set[tuple[int, str]] = set()
        """(key, worker) that was ever so."""
        self.workers = [worker.id for worker in self.plans[0].workers]
        """All there ever were, those that left too: they go on reporting, as far as they are heard."""
        self.refused: list[str] = []
        self.given_again = 0
        self.units = [UnitNode(self, shard) for shard in range(SHARDS)]
        self.edges = [EdgeNode(self, name) for name in EDGES]
        self.waiting: list[UnitNode | EdgeNode] = []
        """Who is asked for the newest version and has not taken it."""

    # --- plans ------------------------------------------------------------------------------------

    def change(self, what: str, number: int, without: frozenset[int], *, reuse: bool = True) -> None:
        """The next version: units that are asked may refuse it. Who was left out before still is."""
        plan = self.plans[-1]
        asked: list[UnitNode | EdgeNode] = [*self.units, *self.edges]
        asked = [each for i, each in enumerate(asked) if i not in without and each.plan is plan]
        if self.waiting or not any(isinstance(each, UnitNode) for each in asked):
            return
        if any(isinstance(each, UnitNode) and not each.settled for each in asked):
            return
        new = replace(_changed(plan, what, number, reuse=reuse), plan_version=plan.plan_version + 1)
        if any(change.is_refused for change in plan_changes(plan, new)):
            return
        units = [each for each in asked if isinstance(each, UnitNode)]
        refusals = [unit.refuses(new) for unit in units if unit.refuses(new)]
        if refusals:
            self.refused += refusals
            return
        self.given_again += len(given_again(plan, new))
        self.plans.append(new)
        self.workers += [worker.id for worker in new.workers if worker.id not in self.workers]
        self.waiting = [*units, *(each for each in asked if isinstance(each, EdgeNode)), *units]

    def bring(self, times: int = 1) -> None:
        """The next steps of what was begun: units prepare, edges take, units settle."""
        for _ in range(times if self.waiting else 0):
            self._bring_next()
            self.check()

    def _bring_next(self) -> None:
        if not self.waiting:
            return
        node, plan = self.waiting.pop(0), self.plans[-1]
        if isinstance(node, EdgeNode):
            if node.plan is not plan:
                node.take(plan)
        elif node.plan is not plan:
            node.prepare(plan)
        else:
            node.settle()

    def catch_up(self, number: int) -> None:
        """Who was left out is brought the version after its own, if a unit can take it."""
        node = self._node(number)
        version = node.plan.plan_version
        if version == len(self.plans) or (version + 1 == len(self.plans) and node in self.waiting):
            return
        plan = self.plans[version]
        if isinstance(node, EdgeNode):
            node.take(plan)
        elif node.settled and not node.refuses(plan):
            node.prepare(plan)
            node.settle()

    # --- everything else --------------------------------------------------------------------------

    def report(self, number: int, key: int, tier: int) -> None:
        """A worker comes to hold a key, or to hold it no more, and says so. No two hold the same."""
        worker = self.workers[number % len(self.workers)]
        for unit in self.units:
            own = keys_of(unit.shard, SHARDS)[0] + 100 * self.workers.index(worker) + key
            self.held.add((own, worker))
            session = unit.sessions.get(worker)
            if tier or (session is not None and own in session[0].holdings):
                unit.report(worker, {own: tier})

    def tick(self) -> None:
        """A second passes. Nobody's lease ends by it: agents renew."""
        self.now_us += 1_000_000
        for unit in self.units:
            unit.role.stalled(1_000_000)
            while unit.role.tick(self.now_us):
                pass

    def save(self, number: int) -> None:
        unit = self.units[number % SHARDS]
        unit.saved = snapshot_of(unit.role) or unit.saved

    def pump(self, number: int, times: int, *, through_edge: bool) -> None:
        edge = self.edges[number % len(EDGES)]
        for _ in range(times):
            for shard in edge.shards:
                shard.pump(through_edge=through_edge and edge is not self.edges[0])
                self.check()

    def lose(self, number: int, *, both: bool) -> None:
        """Streams of an edge break; or only their servers notice."""
        for shard in self.edges[number % len(EDGES)].shards:
            if both:
                shard.hang_up()
            else:
                shard.lose()

    def restart(self, number: int, *, newest: bool, restore: bool) -> None:
        """With the plan that it ran, or with the newest one."""
        node = self._node(number)
        if newest:
            node.plan = self.plans[-1]
        if isinstance(node, EdgeNode):
            node.start()
        else:
            node.start(restore=restore)

    def _node(self, number: int) -> UnitNode | EdgeNode:
        nodes: list[UnitNode | EdgeNode] = [*self.units, *self.edges]
        return nodes[number % len(nodes)]

    def check(self) -> None:
        """What edges may read names nobody for a key that it never held."""
        for edge in self.edges:
            seats = {(worker.table, worker.slot): worker.id for worker in edge.plan.workers}
            for shard in edge.shards:
                for key, table, slot in shard.view.fields if shard.view.present else ():
                    worker = seats.get((table, slot))
                    if worker is not None and (key, worker) not in self.held:
                        raise WrongNameError(f"{edge.name} reads {key} as {worker}'s")


def _changed(plan: Plan, what: str, number: int, *, reuse: bool) -> Plan:
    if what == "remove" and len(plan.workers) > 1:
        gone = number % len(plan.workers)
        return replace(plan, workers=plan.workers[:gone] + plan.workers[gone + 1 :])
    if what != "add":
        return plan
    worker = Worker(
        id=f"w-{plan.plan_version + 1}",
        region=("a", "b")[number % 2],
        url="http://new",
        events="tcp://new",
        table=UNASSIGNED,
        slot=UNASSIGNED,
        prefill_ms_per_token=0.2,
        reload_ms_per_token=0.02,
    )
    workers, given = assign_workers(
        (*plan.workers, worker), slots=SLOTS, given=plan.index.slots_given, reuse=reuse
    )
    return replace(plan, workers=workers, index=replace(plan.index, slots_given=given))
