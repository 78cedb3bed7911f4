"""How one shard of a view is fed: whom it follows, what ends a stream, and when the next one begins."""

from dataclasses import dataclass
from random import Random
from typing import Final

from kvcompass.roles.backoff import Backoff
from kvcompass.roles.messages import Acknowledgement, PatchGroups, UnitToEdge
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.upstream_choice import Opening, SourceKind, UpstreamChoice
from kvcompass.roles.upstream_probe import UpstreamProbe
from kvcompass.roles.view_relay import ViewRelay

COPYING_US: Final = 1_000
"""Between two looks whether a copy of the view is whole, and the next message may be taken."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What follows the end of a stream."""

    pause_us: int
    """Until the next one is to be opened; 0 where the shard is only followed elsewhere."""
    is_news: bool
    """It ended otherwise than the one before, or since the view was exact: worth a line in a log."""


class ShardFeed:
    """State machine of one shard's feed. Its driver has one stream at a time, and carries what is said.

    It calls `open` and opens the stream that this says; then `on_message` with each message; when that says
    what ends the stream, or the driver itself learns it (a broken connection, silence until `silent_at_us`,
    an answer to `probe`), it closes the stream, calls `ended`, and opens the next one after the pause.
    Whoever follows this edge may be passed something on after `open` and after each message.
    """

    def __init__(self, relay: ViewRelay, choice: UpstreamChoice, jitter: Random) -> None:
        """`jitter`: of pauses; of each feed its own, so that edges do not come back all at once."""
        self.relay: Final = relay
        self.follower: Final = relay.follower
        self.choice: Final = choice
        self.probe: Final = UpstreamProbe(choice, relay.follower, jitter)
        self._backoff = Backoff(jitter)
        self._is_open = False
        self._taken_us = 0
        """When the stream began, or its newest message was taken."""
        self._acknowledged = 0
        """Sequence that whoever is followed knows to be applied."""
        self._began_at = (0, 0)
        """Epoch and sequence of the view when the stream began."""
        self._told: tuple[str, Resubscribe] | None = None
        """Source and end of the last stream whose end was news, until the view is exact again."""

    def open(self, now_us: int) -> Opening:
        """The stream to be opened now."""
        assert not self._is_open, "one stream at a time"
        self._is_open = True
        source = self.choice.next(loaded=self.follower.loaded, now_us=now_us)
        self.relay.follows(an_edge=source.kind is SourceKind.EDGE)
        self._taken_us = now_us
        request = self.follower.subscribe_request()
        self._acknowledged = request.applied_sequence
        self._began_at = self.follower.unit_epoch, self.follower.applied_sequence
        return Opening(source, request)

    @property
    def silent_at_us(self) -> int:
        """When the stream is given up, with `silence`, unless a message is taken before.

        From its beginning on, so that a way to nowhere costs no more than a peer that has stopped; and what
        is written has as long to get through.
        """
        return self._taken_us + self.follower.stale_after_us

    def silence(self) -> Resubscribe:
        """What ends a stream then."""
        return Resubscribe(ResubscribeReason.SILENCE, f"nothing for {self.follower.stale_after_us / 1e6:g} s")

    def on_message(self, message: UnitToEdge, now_us: int) -> Resubscribe | Acknowledgement | None:
        """Takes the stream's next message: what ends the stream, or what is to be answered.

        Precondition: the relay is not copying; messages wait until it is done.
        """
        assert self._is_open
        self._taken_us = now_us
        snapshots = self.follower.counters.snapshots
        ended = self.relay.on_message(message, now_us)
        if ended is not None:
            return ended
        if not self.choice.may_stay(loaded=self.follower.loaded):
            return Resubscribe(ResubscribeReason.MOVED, "it is none to follow further")
        if isinstance(message, PatchGroups):
            return None  # the watermark that comes after them is answered
        if self.follower.counters.snapshots != snapshots:
            self._acknowledged = 0  # whoever sent one knows of nothing that is applied
        newest = self.relay.acknowledgement()
        if newest.sequence == self._acknowledged:
            return None
        self._acknowledged = newest.sequence
        return newest

    def ended(self, ended: Resubscribe, now_us: int) -> Ended:
        """The stream is closed, or was never opened. Pauses grow as long as streams are of no use.

        One that brought the view on was of use, though it never got to be exact: where every third message
        is lost, few streams live until a watermark finds nothing missing. One that fell back from an edge is
        no reason to wait: the unit is there.
        """
        assert self._is_open
        self._is_open = False
        source, follower = self.choice.source, self.follower
        if follower.was_exact:
            self._told = None
        brought_on = (follower.unit_epoch, follower.applied_sequence) != self._began_at
        if follower.was_exact or brought_on or source.kind is SourceKind.EDGE:
            self._backoff.reset()
        follower.stream_ended(ended.reason)
        self.choice.ended(ended.reason, loaded=follower.loaded, now_us=now_us)
        self.probe.drop()
        if ended.reason is ResubscribeReason.MOVED:
            return Ended(pause_us=0, is_news=False)
        is_news = self._told != (source.id, ended)
        self._told = source.id, ended
        return Ended(self._backoff.next_us(), is_news)
