"""Carries what a shard's feed says and hears between the processes of a run."""

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from kvcompass.roles.messages import Acknowledgement, SubscribeRequest, UnitToEdge
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import COPYING_US, ShardFeed
from kvcompass.roles.upstream_probe import SILENT
from simulator.clock import Action
from simulator.convergence.view_server import ViewServer
from simulator.place import Place
from simulator.product import sizes
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
                self.feed.on_answer(message)
            else:
                self.feed.on_message(message)

    def hung_up(self, attempt: int) -> None:
        """The connection broke."""
        if self.is_open and attempt == self.attempt:
            if self._probes:
                self.feed.on_answer("the connection broke")
            else:
                self.feed.lost("the connection broke")


class ViewFeed:
    """One shard of one incarnation of an edge."""

    def __init__(
        self,
        site: Place,
        feed: ShardFeed,
        served: ViewServer,
        servers: Mapping[str, SubscribeServer],
        region: int,
    ) -> None:
        """`served`: where others follow this edge. `servers`: everybody, by id in the plan."""
        self.site: Final = site
        self.relay: Final = feed.relay
        self.follower: Final = feed.follower
        self.choice: Final = feed.choice
        self.region: Final = region
        self.ends: Final = {
            source.id: UpstreamEnd(self, servers[source.id])
            for source in (feed.choice.unit, *feed.choice.edges)
        }
        """By whom it may follow, and"""
        self.probes: Final = {
            source.id: UpstreamEnd(self, servers[source.id], probes=True) for source in feed.choice.edges
        }
        """whom it may ask."""
        self._feed = feed
        self._served = served
        self._end = self.ends[feed.choice.unit.id]
        """The one followed now."""
        self._inbox: deque[UnitToEdge] = deque()
        """Came while the view was being copied."""
        self._asking: UpstreamEnd | None = None
        self._stream = 0
        """Streams begun and ended: what is left of an earlier one is passed over."""

    @property
    def server(self) -> SubscribeServer:
        """Whom it follows; between two streams, whom it followed last."""
        return self._end.server

    def dial(self) -> None:
        """Open a stream to whom the feed says."""
        opening = self._feed.open(self.site.now_us)
        self._served.changed()
        self._end = self.ends[opening.source.id]
        self._stream += 1
        if not self._end.open(opening.request):
            self.lost(f"{opening.source.id} cannot be reached")
            return
        self._listen(self._stream)
        if self._feed.probe.is_of_use:
            self._ask_later()

    def on_message(self, message: UnitToEdge) -> None:
        """The server says something."""
        self._inbox.append(message)
        if len(self._inbox) == 1:
            self._take_in(self._stream)

    def lost(self, why: str) -> None:
        """The present stream's connection broke, or there was none."""
        self._over(Resubscribe(ResubscribeReason.LOST, why))

    def _over(self, ended: Resubscribe) -> None:
        """The present stream is of no more use."""
        pause_us = self._feed.ended(ended, self.site.now_us).pause_us
        self._stream += 1
        self._inbox.clear()
        self._end.close()
        self._close_question()
        if pause_us:
            self.site.after(pause_us, self.dial)
        else:
            self.dial()

    def _take_in(self, stream: int) -> None:
        while self._inbox and stream == self._stream:
            if self.relay.is_copying:
                self.site.after(COPYING_US, self._take_in, stream)
                return
            answer = self._feed.on_message(self._inbox.popleft(), self.site.now_us)
            if isinstance(answer, Resubscribe):
                self._over(answer)
                return
            self._served.changed()
            if answer is not None:
                end, server = self._end, self._end.server
                self.site.send_reliably(
                    server.region, server.acknowledged, sizes.ACKNOWLEDGEMENT, (end, end.attempt, answer)
                )

    def _listen(self, stream: int) -> None:
        """Give the stream up after so long a silence."""
        if stream != self._stream:
            return
        quiet_us = self._feed.silent_at_us - self.site.now_us
        if quiet_us <= 0:
            self._over(self._feed.silence())
        else:
            self.site.after(quiet_us, self._listen, stream)

    # --- asking others, beside the stream -----------------------------------------------------------

    def _ask_later(self) -> None:
        self.site.after(self._feed.probe.pause_us(), self._ask, self._stream)

    def _ask(self, stream: int) -> None:
        if stream != self._stream:
            return
        probe = self._feed.probe
        opening = probe.ask(self.site.now_us)
        if opening is None:
            self._ask_later()
            return
        self._asking = end = self.probes[opening.source.id]
        if end.open(opening.request):
            self.site.after(probe.answer_within_us, self._unanswered, end, end.attempt)
        else:
            self.on_answer("it cannot be reached")

    def _unanswered(self, end: UpstreamEnd, attempt: int) -> None:
        if end.is_open and end.attempt == attempt:
            self.on_answer(SILENT)

    def on_answer(self, answer: UnitToEdge | str) -> None:
        """The first word of the edge that was asked, or why there is none."""
        self._close_question()
        outcome = self._feed.probe.answered(answer, self.site.now_us)
        if isinstance(outcome, Resubscribe):
            self._over(outcome)
        else:
            self._ask_later()

    def _close_question(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None
