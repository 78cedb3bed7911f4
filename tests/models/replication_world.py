"""Agents, one unit and its followers in virtual time, over a network that loses, repeats and reorders.

An agent sends what the product's `UnitReport` gives it, when its link has carried what came before.
Opening a stream is one step; everything after it crosses the network. What arrives on a stream that was
replaced is thrown away, as a closed connection would. Same seed, same run.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    AgentToUnit,
    Handshake,
    Refusal,
    Renewal,
    UnitToAgent,
    UnitToEdge,
)
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.shard_view import ShardView
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_source import AgentSession
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_worker import HeldKeys

MS = 1_000
STALE_US = 3 * S


@dataclass
class Faults:
    """Of every message between two components."""

    loss: float = 0.0
    duplication: float = 0.0
    jitter_us: int = 0
    """A message takes up to so much longer than another: this is what reorders."""
    keys_per_s: float = float("inf")
    """What the link from an agent to its unit carries."""


@dataclass
class AgentNode:
    agent: HeldKeys
    report: UnitReport
    session: AgentSession | None = None
    engine_up: bool = True
    stream: int = 0
    link_busy: bool = False


@dataclass
class EdgeNode:
    view: ShardView
    follower: IndexFollower
    subscription: Subscription | None = None
    connected: bool = True
    stream: int = 0
    heard_us: int = 0
    on_change: list[Callable[[], None]] = field(default_factory=list)


class World:
    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        tables: Callable[[], ShardWriter],
        view: Callable[[], ShardView],
        lease_ms: int = 3_000,
        bounds: UnitBounds | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now_us = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._tables = tables
        self._bounds = bounds or UnitBounds()
        self.plan = replication_plan(lease_ms=lease_ms)
        self.layout = layout_fields(self.plan)
        self._epochs = itertools.count(100)
        self.unit = self._new_unit()
        self.agents = {worker: self._new_agent(worker) for worker in WORKERS}
        self.edges = [self._new_edge(name, view()) for name in ("edge-a", "edge-b")]
        for node in self.agents.values():
            self._connect_agent(node)
            self.every(lease_ms * MS // 3, lambda node=node: self._renew(node))
        for edge in self.edges:
            self._subscribe(edge)
            self.every(500 * MS, lambda edge=edge: self._watch(edge))
        self.every(5 * MS, self._pump)

    # --- time -------------------------------------------------------------------------------------

    def at(self, delay_us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_us + delay_us, next(self._order), action))

    def every(self, period_us: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.at(period_us, again)

        self.at(period_us, again)

    def run(self, duration_us: int) -> None:
        end = self.now_us + duration_us
        while self._events and self._events[0][0] <= end:
            self.now_us, _, action = heapq.heappop(self._events)
            action()
        self.now_us = end

    def send(self, deliver: Callable[[], None]) -> None:
        copies = 2 if self.random.random() < self.faults.duplication else 1
        for _ in range(copies):
            if self.random.random() >= self.faults.loss:
                self.at(MS + self.random.randint(0, self.faults.jitter_us), deliver)

    # --- what happens to the fleet ----------------------------------------------------------------

    def edit(self, worker: str, tiers: dict[int, int]) -> None:
        node = self.agents[worker]
        held = node.agent.tiers
        node.report.on_edits(node.agent.edit({k: t for k, t in tiers.items() if t or k in held}))
        self._drive(node)

    def edit_at_random(self, keys: int = 40) -> None:
        """One to six keys of one worker; key 0 of the first worker is never touched."""
        chosen = self.random.sample(range(1, keys), self.random.randint(1, 6))
        self.edit(self.random.choice(WORKERS), {key: self.random.choice([0, 1, 2]) for key in chosen})

    def restart_unit(self) -> None:
        self.unit = self._new_unit()
        for node in self.agents.values():
            self._hang_up(node)
            self.at(self.random.randint(100, 900) * MS, lambda node=node: self._connect_agent(node))
        for edge in self.edges:
            edge.subscription = None
            self._lost(edge, ResubscribeReason.LOST)

    def restart_agent(self, worker: str) -> None:
        node = self.agents[worker]
        self._hang_up(node)
        node.agent.epoch += 1
        self._connect_agent(node)

    def kill_worker(self, worker: str) -> None:
        node = self.agents[worker]
        node.engine_up = node.agent.vouches = False
        self._hang_up(node)

    def cut(self, edge: EdgeNode) -> None:
        """Partition: nothing reaches the edge, which notices by silence only."""
        edge.connected = False

    def heal(self, edge: EdgeNode) -> None:
        edge.connected = True

    def truth(self) -> dict[str, dict[int, int]]:
        """Tiers that live workers hold."""
        return {w: node.agent.tiers if node.engine_up else {} for w, node in self.agents.items()}

    # --- agents <-> unit --------------------------------------------------------------------------

    def _new_agent(self, worker: str) -> AgentNode:
        agent = HeldKeys(worker)
        return AgentNode(
            agent,
            UnitReport(agent, 0, self.layout, self.plan.plan_version, lease_ms=self.plan.routing.lease_ms),
        )

    def _hang_up(self, node: AgentNode) -> None:
        if node.session is not None:
            self.unit.agent_disconnected(node.session)
        node.session = None
        node.report.disconnected()

    def _connect_agent(self, node: AgentNode) -> None:
        if not node.engine_up:
            return
        self._hang_up(node)
        opened = self.unit.agent_connected(node.report.connect(), self.now_us)
        assert not isinstance(opened, Refusal), opened
        node.stream += 1
        node.session, welcome = opened
        self._to_agent(node, welcome)

    def _drive(self, node: AgentNode) -> None:
        """Send what there is, one message after the other at the speed of the link."""
        if node.link_busy or node.session is None:
            return
        message = node.report.take()
        if message is None:
            return
        self._to_unit(node, message)
        keys = 1 if isinstance(message, Renewal) else len(message.keys)
        node.link_busy = True
        self.at(int(keys / self.faults.keys_per_s * S), lambda: self._link_is_free(node))

    def _link_is_free(self, node: AgentNode) -> None:
        node.link_busy = False
        self._drive(node)

    def _to_unit(self, node: AgentNode, message: AgentToUnit) -> None:
        session, unit = node.session, self.unit

        def deliver() -> None:
            if session is None or session is not node.session or unit is not self.unit:
                return
            for answer in unit.on_agent_message(session, message, self.now_us):
                self._to_agent(node, answer)
            while unit.work(session, self.now_us):
                pass

        self.send(deliver)

    def _to_agent(self, node: AgentNode, message: UnitToAgent) -> None:
        stream = node.stream

        def deliver() -> None:
            if stream != node.stream:
                return
            assert not isinstance(message, Refusal), message
            node.report.on_message(message)
            self._drive(node)

        self.send(deliver)

    def _renew(self, node: AgentNode) -> None:
        if not node.engine_up:
            return
        if not node.report.welcomed:
            self._connect_agent(node)
        node.report.renew()
        self._drive(node)

    # --- unit <-> edges ---------------------------------------------------------------------------

    def _pump(self) -> None:
        self.unit.tick(self.now_us)
        for edge in self.edges:
            subscription, stream = edge.subscription, edge.stream
            while subscription and (batch := self.unit.take(subscription, self.now_us)):
                for message in batch:
                    self.send(lambda edge=edge, m=message, stream=stream: self._at_edge(edge, stream, m))

    def _at_edge(self, edge: EdgeNode, stream: int, message: UnitToEdge) -> None:
        if not edge.connected or stream != edge.stream:
            return
        verdict = edge.follower.on_message(message, self.now_us)
        edge.heard_us = self.now_us
        for check in edge.on_change:
            check()
        if verdict is not None:
            self._lost(edge, verdict.reason)

    def _watch(self, edge: EdgeNode) -> None:
        if self.now_us - edge.heard_us > STALE_US:
            edge.heard_us = self.now_us
            self._lost(edge, ResubscribeReason.SILENCE)

    def _lost(self, edge: EdgeNode, reason: ResubscribeReason) -> None:
        edge.follower.stream_ended(reason)
        edge.stream += 1
        if edge.subscription is not None:
            self.unit.unsubscribe(edge.subscription)
            edge.subscription = None
        self.at(self.random.randint(50, 200) * MS, lambda: self._subscribe(edge))

    def _subscribe(self, edge: EdgeNode) -> None:
        if edge.subscription is not None or not edge.connected:
            return
        opened = self.unit.subscribe(edge.follower.subscribe_request(), self.now_us)
        assert not isinstance(opened, Refusal), opened
        edge.subscription = opened
        edge.heard_us = self.now_us

    def _new_unit(self) -> MaintenanceUnit:
        return MaintenanceUnit(
            self.plan,
            "unit-0",
            epoch=next(self._epochs),
            layout=self.layout,
            tables=self._tables(),
            now_us=self.now_us,
            bounds=self._bounds,
        )

    def _new_edge(self, name: str, view: ShardView) -> EdgeNode:
        handshake = Handshake(name, 5, PROTOCOL_VERSION, 1, self.layout)
        return EdgeNode(view, IndexFollower(0, view, handshake, stale_after_us=STALE_US))


def keys_array(keys: int) -> np.ndarray:
    return np.arange(keys, dtype=np.uint64)
