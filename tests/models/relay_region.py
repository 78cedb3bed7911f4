"""A unit and the edges of one region in virtual time: who follows whom is the product's own choice.

A stream is a queue that loses, repeats and reorders when told; a subscriber that does not read leaves it
full, and its server waits. Every view is compared, after every message, with what the unit's table was at
the sequence that the view says it has.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Edge, Plan
from kvcompass.roles.desk_bounds import DeskBounds
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Handshake,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
)
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.upstream_choice import Bootstrap, Opening, Source, SourceKind, Upstream, UpstreamChoice
from kvcompass.roles.upstream_probe import SILENT
from kvcompass.roles.view_relay import ViewRelay
from tests.models.replication_agent import edits_of
from tests.models.replication_fleet import S, replication_plan
from tests.models.replication_table import DictTables, DictView

MS = 1_000
STEP_US = 50 * MS
STALE_US = 3 * S
QUEUE = 3
"""Messages under way on one stream."""
LOST = Resubscribe(ResubscribeReason.LOST, "")


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
            foreseen=(),
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
    began_us: int
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
        self.feed = ShardFeed(self.relay, self.choice, Random(f"{self.name} {self._epoch}"))
        self.stream: Stream | None = None
        self.question: Stream | None = None
        """The one beside it."""
        self._open_us = region.now_us
        self._ask_us = region.now_us

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

    # --- as a follower: it carries what its feed says -----------------------------------------------

    def tick(self) -> None:
        self.relay.copy_part()
        now_us = self.region.now_us
        if self.stream is None:
            if now_us >= self._open_us:
                self._open()
        elif self.reads and now_us >= self.feed.silent_at_us:
            self._end(self.feed.silence())
        self._ask_others()

    def deliver(self) -> None:
        """Reads one message, if one is there."""
        stream = self.stream
        if stream is None or not self.reads or self.relay.is_copying:
            return
        if not stream.queue:
            if stream.ended:
                self._end(LOST)
            return
        answer = self.feed.on_message(stream.queue.popleft(), self.region.now_us)
        self.check()
        if isinstance(answer, Resubscribe):
            self._end(answer)
        elif answer is not None and stream.subscription is not None and self.region.passes(self, stream):
            if isinstance(stream.server, Unit):
                stream.server.desk.acknowledged(stream.subscription, answer)
            else:
                stream.server.relay.acknowledged(stream.subscription, answer)

    def check(self) -> None:
        """The view is what the table was at the sequence that the view says it has."""
        follower = self.follower
        if follower.loaded and not self.spoilt:
            place = follower.unit_epoch, follower.applied_sequence
            assert follower.digest == self.region.digests[place], (self.name, place)

    def _open(self) -> None:
        self.stream = self.region.dial(self, self.feed.open(self.region.now_us))
        self._ask_us = self.region.now_us + self.feed.probe.pause_us()
        if self.stream is None:
            self._end(LOST)

    def _end(self, ended: Resubscribe) -> None:
        self._hang_up()
        self._open_us = self.region.now_us + self.feed.ended(ended, self.region.now_us).pause_us

    def _hang_up(self) -> None:
        for stream in (self.stream, self.question):
            if stream is not None:
                self.region.close(stream)
        self.stream = self.question = None

    def _ask_others(self) -> None:
        """Beside the stream."""
        probe, now_us, question = self.feed.probe, self.region.now_us, self.question
        if question is not None:
            if question.queue:
                self._answered(question.queue[0])
            elif question.ended or now_us - question.began_us >= probe.answer_within_us:
                self._answered(SILENT)
        elif self.stream is not None and probe.is_of_use and now_us >= self._ask_us:
            self._ask_us = now_us + probe.pause_us()
            opening = probe.ask(now_us)
            if opening is not None:
                self.question = self.region.dial(self, opening)
                if self.question is None:
                    self._answered(SILENT)

    def _answered(self, answer: UnitToEdge | str) -> None:
        if self.question is not None:
            self.region.close(self.question)
            self.question = None
        outcome = self.feed.probe.answered(answer, self.region.now_us)
        if isinstance(outcome, Resubscribe):
            self._end(outcome)


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

    def dial(self, node: Node, opening: Opening) -> Stream | None:
        """None where nobody answers at once."""
        server = self._server(opening.source)
        stream = Stream(server, opening.source, None, self.now_us)
        if not server.alive:
            return None
        if not self.passes(node, stream):
            self.streams.append(stream)
            return stream  # silence
        opened = server.subscribe(opening.request)
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
        node = next((each for each in self.edges if stream in (each.stream, each.question)), None)
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
