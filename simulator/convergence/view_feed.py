"""What keeps a shard of an edge's view up to date: `services.edge.fleet.index_feed`, rule for rule."""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Final, Protocol

from kvcompass.roles.index_follower import IndexFollower, Resubscribe, ResubscribeReason
from kvcompass.roles.messages import Acknowledgement, PatchGroups, SubscribeRequest, UnitToEdge
from kvcompass.roles.upstream_choice import Source, SourceKind, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from simulator.clock import Action
from simulator.convergence.view_server import ViewServer
from simulator.place import Place
from simulator.product import sizes
from simulator.product.backoff import Backoff
from simulator.product.periods import BUSY_TICK_US, PROBE_US
from simulator.product.unit_node import EdgeStream


class SubscribeServer(Protocol):
    """A unit, or another edge."""

    @property
    def region(self) -> int:
        """Where it stands."""

    def edge_dialled(self, stream: EdgeStream, attempt: int, request: SubscribeRequest) -> None:
        """A Subscribe stream begins."""

    def edge_hung_up(self, stream: EdgeStream, attempt: int) -> None:
        """It has ended."""

    def acknowledged(self, stream: EdgeStream, attempt: int, acknowledgement: Acknowledgement) -> None:
        """What its subscriber has applied."""


class UpstreamEnd:
    """A feed's streams to one server, one after the other. A `Stream`, and to the server an `EdgeStream`."""

    def __init__(self, feed: "ViewFeed", server: SubscribeServer, *, probes: bool = False) -> None:
        """`probes`: its streams are beside the feed's own: they end with their first message."""
        self.feed: Final = feed
        self.server: Final = server
        self.sent_attempt = 0
        """At the server: the newest that it has heard of."""
        self.attempt = 0
        self.is_open = False
        self._probes = probes

    @property
    def far_end(self) -> Action:
        """What tells the server that an attempt has ended."""
        return self.server.edge_hung_up

    def open(self, request: SubscribeRequest) -> bool:
        """Dial. False: the server cannot be reached."""
        self.attempt += 1
        self.is_open = True
        return self.feed.site.send_reliably(
            self.server.region, self.server.edge_dialled, sizes.HANDSHAKE, (self, self.attempt, request)
        )

    def close(self) -> None:
        """Give the present attempt up, and let the server know."""
        if self.is_open:
            self.is_open = False
            self.feed.site.send_reliably(self.server.region, self.far_end, 0, (self, self.attempt))

    def deliver(self, message: UnitToEdge) -> bool:
        """At the server: send it to the edge."""
        size = sizes.unit_to_edge(message)
        return self.feed.site.send_reliably(self.feed.region, self.heard, size, (self.sent_attempt, message))

    def heard(self, attempt: int, message: UnitToEdge) -> None:
        """The server says something."""
        if self.is_open and attempt == self.attempt:
            if self._probes:
                self.feed.on_answer(self, message)
            else:
                self.feed.on_message(message)

    def hung_up(self, attempt: int) -> None:
        """The connection broke."""
        if self.is_open and attempt == self.attempt:
            if self._probes:
                self.feed.on_answer(self, None)
            else:
                self.feed.end(Resubscribe(ResubscribeReason.LOST, "the connection broke"))


class ViewFeed:
    """One shard of one incarnation of an edge."""

    def __init__(
        self,
        site: Place,
        relay: ViewRelay,
        choice: UpstreamChoice,
        served: ViewServer,
        servers: Mapping[str, SubscribeServer],
        region: int,
        backoff: Backoff,
        random: Random,
    ) -> None:
        """`served`: where others follow this edge. `servers`: everybody, by id in the plan."""
        self.site: Final = site
        self.relay: Final = relay
        self.follower: Final[IndexFollower] = relay.follower
        self.choice: Final = choice
        self.region: Final = region
        self.ends: Final = {
            source.id: UpstreamEnd(self, servers[source.id]) for source in (choice.unit, *choice.edges)
        }
        """By whom it may follow, and"""
        self.probes: Final = {
            source.id: UpstreamEnd(self, servers[source.id], probes=True) for source in choice.edges
        }
        """whom it may ask."""
        self._served = served
        self._backoff = backoff
        self._random = random
        self._end = self.ends[choice.unit.id]
        """The one followed now."""
        self._heard_us = 0
        self._acknowledged = 0
        self._inbox: deque[UnitToEdge] = deque()
        """Came while the view was being copied."""
        self._asked: tuple[Source, SubscribeRequest] | None = None
        self._stream = 0
        """Streams begun and ended: what is left of an earlier one is passed over."""

    @property
    def server(self) -> SubscribeServer:
        """Whom it follows; between two streams, whom it followed last."""
        return self._end.server

    def dial(self) -> None:
        """Open a stream to whom the choice says."""
        now_us, choice = self.site.now_us, self.choice
        source = choice.next(loaded=self.follower.loaded, now_us=now_us)
        self.relay.follows(an_edge=source.kind is SourceKind.EDGE)
        self._served.changed()
        self._end = self.ends[source.id]
        self._stream += 1
        self._heard_us = now_us
        self._acknowledged = self.follower.applied_sequence
        if not self._end.open(self.follower.subscribe_request()):
            self.end(Resubscribe(ResubscribeReason.LOST, f"{source.id} cannot be reached"))
            return
        self._listen(self._stream)
        if choice.may_probe:
            self._probe_later(self._stream)

    def on_message(self, message: UnitToEdge) -> None:
        """The server says something."""
        self._heard_us = self.site.now_us
        self._inbox.append(message)
        if len(self._inbox) == 1:
            self._take_in(self._stream)

    def end(self, ended: Resubscribe) -> None:
        """The present stream is of no more use."""
        reason, choice, follower = ended.reason, self.choice, self.follower
        if follower.was_exact or choice.source.kind is SourceKind.EDGE:
            self._backoff.reset()
        follower.stream_ended(reason)
        choice.ended(reason, loaded=follower.loaded, now_us=self.site.now_us)
        self._stream += 1
        self._inbox.clear()
        self._end.close()
        self._end_probe()
        if reason is ResubscribeReason.MOVED:
            self.dial()
        else:
            self.site.after(self._backoff.next_us(), self.dial)

    def _take_in(self, stream: int) -> None:
        while self._inbox and stream == self._stream:
            if self.relay.is_copying:
                self.site.after(BUSY_TICK_US, self._take_in, stream)
                return
            message = self._inbox.popleft()
            ended = self.relay.on_message(message, self.site.now_us)
            if ended is not None:
                self.end(ended)
                return
            self._served.changed()
            if not self.choice.may_stay(loaded=self.follower.loaded):
                self.end(Resubscribe(ResubscribeReason.MOVED, "it is none to follow further"))
                return
            if not isinstance(message, PatchGroups):
                self._acknowledge()

    def _acknowledge(self) -> None:
        newest = self.relay.acknowledgement()
        if newest.sequence != self._acknowledged:
            self._acknowledged = newest.sequence
            end = self._end
            server = end.server
            self.site.send_reliably(
                server.region, server.acknowledged, sizes.ACKNOWLEDGEMENT, (end, end.attempt, newest)
            )

    def _listen(self, stream: int) -> None:
        """Give the stream up after so long a silence."""
        if stream != self._stream:
            return
        quiet_us = self.follower.stale_after_us - (self.site.now_us - self._heard_us)
        if quiet_us <= 0:
            self.end(Resubscribe(ResubscribeReason.SILENCE, "nothing came"))
        else:
            self.site.after(quiet_us, self._listen, stream)

    # --- asking others, beside the stream -----------------------------------------------------------

    def _probe_later(self, stream: int) -> None:
        self.site.after(round(PROBE_US * self._random.uniform(0.5, 1.0)), self._probe, stream)

    def _probe(self, stream: int) -> None:
        if stream != self._stream:
            return
        source = self.choice.to_probe(self.site.now_us) if self.follower.loaded else None
        if source is None:
            self._probe_later(stream)
            return
        request = self.follower.resume_request()
        self._asked = source, request
        end = self.probes[source.id]
        if end.open(request):
            self.site.after(self.follower.stale_after_us, self._unanswered, end, end.attempt)
        else:
            self.on_answer(end, None)

    def _unanswered(self, end: UpstreamEnd, attempt: int) -> None:
        if end.is_open and end.attempt == attempt:
            self.on_answer(end, None)

    def on_answer(self, end: UpstreamEnd, message: UnitToEdge | None) -> None:
        """The first word of an edge that was asked; None: there is none."""
        asked = self._asked
        assert asked is not None
        self._end_probe()
        source, request = asked
        starved = self.follower.is_starved(self.site.now_us)
        if self.choice.probed(source, request, message, self.site.now_us, starved=starved):
            self.end(Resubscribe(ResubscribeReason.MOVED, f"{source.id} serves"))
        else:
            self._probe_later(self._stream)

    def _end_probe(self) -> None:
        if self._asked is not None:
            self.probes[self._asked[0].id].close()
            self._asked = None
