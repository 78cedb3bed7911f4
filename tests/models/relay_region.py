"""A unit and the edges of one region in virtual time: who follows whom is the product's own choice.

A stream is a queue that loses, repeats and reorders when told; a subscriber that does not read leaves it
full, and its server waits. Every view is compared, after every message, with what the unit's table was at
the sequence that the view says it has.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Edge, Plan
from kvcompass.roles.desk_bounds import DeskBounds
from kvcompass.roles.index_follower import FollowerState, IndexFollower, Resubscribe, ResubscribeReason
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Handshake,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
)
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.upstream_choice import Bootstrap, Source, SourceKind, Upstream, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from tests.models.replication_agent import edits_of
from tests.models.replication_fleet import S, replication_plan
from tests.models.replication_table import DictTables, DictView

MS = 1_000
STEP_US = 50 * MS
STALE_US = 3 * S
QUEUE = 3
"""Messages under way on one stream."""
RETRY_US = 100 * MS
PROBE_US = 500 * MS


def region_plan(edges: int) -> Plan:
    """So many edges in region a, and one elsewhere."""
    plan = replication_plan()
    places = [(f"edge-a{number}", "a", number) for number in range(edges)] + [("edge-b", "b", 90)]
    return replace(
        plan,
        edges=tuple(
            Edge(name, region, f"127.0.0.1:{9000 + i}", f"127.0.0.1:{9100 + i}", f"127.0.0.1:{9200 + i}")
            for name, region, i in places
        ),
    )


class Unit:
    """The writer of the shard, with all that its table ever was."""

    def __init__(self, region: "Region", log_groups: int) -> None:
        self.region = region
        self.alive = True
        self.epoch = 0
        self.log_groups = log_groups
        self.restart()

    def restart(self) -> None:
        """Refilled at once, with what it had: a new epoch and a new table of the same fields."""
        fields = dict(self.tables.fields) if self.epoch else {}
        self.epoch += 1
        self.tables = DictTables(snapshot_parts=2)
        self.tables.fields = fields
        self.desk = UnitDesk(
            self.tables,
            epoch=self.epoch,
            layout=self.region.layout,
            plan_version=1,
            bounds=UnitBounds(log_groups=self.log_groups, message_groups=4, chunk_bytes=40),
            counters=UnitCounters(),
        )
        self.alive = True
        self._note()

    def edit(self, key: int, tier: int) -> None:
        if not self.desk.is_copying:
            edits = edits_of(1, {key: tier, key + 100: tier})
            self.desk.tables_changed(self.tables.edit(edits.keys, 0, 0, edits.tiers))
            self._note()

    def rebuild(self) -> None:
        if not self.desk.is_copying:
            self.tables.rebuild_every = 1
            self.edit(7, 1 + self.tables.edits % 2)
            self.tables.rebuild_every = 0

    def tick(self) -> None:
        self.desk.copy_part()

    def subscribe(self, request: SubscribeRequest) -> Subscription | Refusal | Unavailable:
        return self.desk.subscribe(request, self.region.now_us)

    def take(self, subscription: Subscription) -> list[UnitToEdge]:
        return self.desk.take(subscription, self.region.now_us)

    def unsubscribe(self, subscription: Subscription) -> None:
        self.desk.unsubscribe(subscription)

    def _note(self) -> None:
        self.region.digests[self.epoch, self.desk.sequence] = self.tables.digest()


@dataclass(eq=False)
class Stream:
    """From a server to an edge."""

    server: "Unit | Node"
    source: Source
    subscription: Subscription | None
    heard_us: int
    queue: deque[UnitToEdge] = field(default_factory=deque)
    ended: bool = False
    """The server has closed it: what is under way still arrives."""


class Node:
    """An edge."""

    def __init__(self, region: "Region", name: str, bootstrap: Bootstrap, upstream: Upstream) -> None:
        self.region = region
        self.name = name
        self.alive = True
        self.reads = True
        self._epoch = 0
        self._settings = bootstrap, upstream
        self.start()

    def start(self) -> None:
        """With nothing."""
        self._epoch += 1
        region = self.region
        self.view = DictView(snapshot_parts=2)
        handshake = Handshake(self.name, self._epoch, PROTOCOL_VERSION, 1, region.layout)
        self.follower = IndexFollower(0, self.view, handshake, stale_after_us=STALE_US)
        self.relay = ViewRelay(
            self.follower,
            self.view,
            edge_id=self.name,
            layout=region.layout,
            plan_version=1,
            bounds=DeskBounds(log_groups=region.relay_groups, message_groups=4, chunk_bytes=40),
        )
        bootstrap, upstream = self._settings
        self.choice = UpstreamChoice(region.plan, self.name, 0, bootstrap=bootstrap, upstream=upstream)
        self.alive = self.reads = True
        self.spoilt = False
        """The test has changed the view behind its back."""
        self.stream: Stream | None = None
        self.probe: tuple[Stream, SubscribeRequest] | None = None
        self._retry_us = region.now_us
        self._probe_us = region.now_us + PROBE_US

    @property
    def state(self) -> FollowerState:
        return self.follower.state(self.region.now_us)

    def die(self) -> None:
        self.alive = False
        self._hang_up()

    # --- as a server ------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest) -> Subscription | Refusal | Unavailable:
        return self.relay.subscribe(request, self.region.now_us)

    def take(self, subscription: Subscription) -> list[UnitToEdge]:
        messages = self.relay.take(subscription, self.region.now_us)
        if any(not isinstance(message, Unavailable) for message in messages):
            assert self.choice.source.kind is SourceKind.UNIT, "whoever follows an edge serves nobody"
        return messages

    def unsubscribe(self, subscription: Subscription) -> None:
        self.relay.unsubscribe(subscription)

    # --- as a follower: what `services.edge.fleet.index_feed` does ---------------------------------

    def tick(self) -> None:
        self.relay.copy_part()
        now_us = self.region.now_us
        if self.stream is None:
            if now_us >= self._retry_us:
                self._open()
        elif self.reads and now_us - self.stream.heard_us > STALE_US:
            self._end(ResubscribeReason.SILENCE)
        self._look_for_better()

    def deliver(self) -> None:
        """Reads one message, if one is there."""
        stream = self.stream
        if stream is None or not self.reads or self.relay.is_copying:
            return
        if not stream.queue:
            if stream.ended:
                self._end(ResubscribeReason.LOST)
            return
        message = stream.queue.popleft()
        stream.heard_us = self.region.now_us
        ended = self.relay.on_message(message, self.region.now_us)
        self.check()
        if ended is None and not self.choice.may_stay(loaded=self.follower.loaded):
            ended = Resubscribe(ResubscribeReason.MOVED, "")
        if ended is not None:
            self._end(ended.reason)
        elif stream.subscription is not None and self.region.passes(self, stream):
            acknowledgement = self.relay.acknowledgement()
            if isinstance(stream.server, Unit):
                stream.server.desk.acknowledged(stream.subscription, acknowledgement)
            else:
                stream.server.relay.acknowledged(stream.subscription, acknowledgement)

    def check(self) -> None:
        """The view is what the table was at the sequence that the view says it has."""
        follower = self.follower
        if follower.loaded and not self.spoilt:
            place = follower.unit_epoch, follower.applied_sequence
            assert follower.digest == self.region.digests[place], (self.name, place)

    def _open(self) -> None:
        region = self.region
        source = self.choice.next(loaded=self.follower.loaded, now_us=region.now_us)
        self.relay.follows(an_edge=source.kind is SourceKind.EDGE)
        self.stream = region.dial(self, source, self.follower.subscribe_request())
        if self.stream is None:
            self._end(ResubscribeReason.LOST)

    def _end(self, reason: ResubscribeReason) -> None:
        region = self.region
        self._hang_up()
        self.follower.stream_ended(reason)
        self.choice.ended(reason, loaded=self.follower.loaded, now_us=region.now_us)
        self._retry_us = region.now_us + (0 if reason is ResubscribeReason.MOVED else RETRY_US)

    def _hang_up(self) -> None:
        for stream in (self.stream, self.probe[0] if self.probe else None):
            if stream is not None:
                self.region.close(stream)
        self.stream = self.probe = None

    def _look_for_better(self) -> None:
        region = self.region
        if self.probe is not None:
            stream, request = self.probe
            answer = stream.queue[0] if stream.queue else None
            if answer is None and not stream.ended and region.now_us - stream.heard_us <= STALE_US:
                return
            self.probe = None
            region.close(stream)
            starved = self.follower.is_starved(region.now_us)
            if self.choice.probed(stream.source, request, answer, region.now_us, starved=starved):
                self._end(ResubscribeReason.MOVED)
        elif region.now_us >= self._probe_us and self.follower.loaded and self.stream is not None:
            self._probe_us = region.now_us + PROBE_US
            source = self.choice.to_probe(region.now_us)
            if source is not None:
                request = self.follower.resume_request()
                stream = region.dial(self, source, request)
                if stream is None:
                    self.choice.probed(source, request, None, region.now_us, starved=False)
                else:
                    self.probe = stream, request


class Region:
    """The unit, and the edges of region a in the plan's order."""

    def __init__(
        self,
        edges: int = 3,
        *,
        bootstrap: Bootstrap = "peer",
        upstream: Upstream = "edge",
        log_groups: int = 400,
        relay_groups: int = 400,
    ) -> None:
        self.plan = region_plan(edges)
        self.layout = layout_fields(self.plan)
        self.relay_groups = relay_groups
        self.now_us = 0
        self.digests: dict[tuple[int, int], int] = {}
        self.unit = Unit(self, log_groups)
        self.streams: list[Stream] = []
        self.cut: set[frozenset[str]] = set()
        """Pairs between which nothing passes."""
        self.edges = [
            Node(self, edge.id, bootstrap, upstream) for edge in self.plan.edges if edge.region == "a"
        ]

    def dial(self, node: Node, source: Source, request: SubscribeRequest) -> Stream | None:
        """None where nobody answers at once."""
        server = self._server(source)
        stream = Stream(server, source, None, self.now_us)
        if not server.alive:
            return None
        if not self.passes(node, stream):
            self.streams.append(stream)
            return stream  # silence
        opened = server.subscribe(request)
        if isinstance(opened, Subscription):
            stream.subscription = opened
            self.streams.append(stream)
        else:
            stream.queue.append(opened)
            stream.ended = True
        return stream

    def close(self, stream: Stream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)
            self._server_closes(stream)

    def step(self) -> None:
        """Everybody does what there is to do; then time passes."""
        self.unit.tick()
        for stream in list(self.streams):
            self._serve(stream)
        for node in self.edges:
            if node.alive:
                node.tick()
        self.now_us += STEP_US

    def run(self, seconds: float) -> None:
        """Without faults on the streams."""
        for _ in range(int(seconds * S) // STEP_US):
            self.step()
            for node in self.edges:
                for _ in range(QUEUE):
                    if node.alive:
                        node.deliver()

    def restart_unit(self) -> None:
        for stream in self.streams:
            if isinstance(stream.server, Unit):
                stream.subscription, stream.ended = None, True
        self.unit.restart()

    def kill_unit(self) -> None:
        for stream in self.streams:
            if isinstance(stream.server, Unit):
                stream.subscription, stream.ended = None, True
        self.unit.alive = False

    def kill(self, node: Node) -> None:
        for stream in self.streams:
            if stream.server is node:
                stream.subscription, stream.ended = None, True
        node.die()

    def assert_converged(self) -> None:
        for node in self.edges:
            assert node.state is FollowerState.EXACT, (node.name, node.state, node.choice.source)
            assert node.view.fields == self.unit.tables.fields, node.name
            assert node.follower.unit_epoch == self.unit.epoch

    def _serve(self, stream: Stream) -> None:
        server, subscription = stream.server, stream.subscription
        node = next(
            (each for each in self.edges if stream in (each.stream, each.probe and each.probe[0])), None
        )
        if node is None or subscription is None or not server.alive or not self.passes(node, stream):
            return
        while len(stream.queue) < QUEUE and (batch := server.take(subscription)):
            stream.queue.extend(batch)
            if any(isinstance(message, Unavailable) for message in batch):
                stream.ended = True
                self._server_closes(stream)
                return

    def _server_closes(self, stream: Stream) -> None:
        if stream.subscription is not None and stream.server.alive:
            stream.server.unsubscribe(stream.subscription)
        stream.subscription = None

    def passes(self, node: Node, stream: Stream) -> bool:
        return frozenset((node.name, stream.source.id)) not in self.cut

    def _server(self, source: Source) -> "Unit | Node":
        if source.kind is SourceKind.UNIT:
            return self.unit
        return next(node for node in self.edges if node.name == source.id)
