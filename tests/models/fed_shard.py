"""One shard's feed of the last edge of a region, and a table that somebody tells it of."""

from random import Random

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Handshake,
    PatchGroups,
    SnapshotChunk,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import Ended, ShardFeed
from kvcompass.roles.upstream_choice import Bootstrap, Opening, Upstream, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from tests.models.relay_region import region_plan
from tests.models.replication_agent import edits_of
from tests.models.replication_fleet import S
from tests.models.replication_table import DictTables, DictView

STALE_US = 3 * S
LOST = Resubscribe(ResubscribeReason.LOST, "the connection broke")


class FedShard:
    """Time stands still unless it is moved. Whoever is followed tells of the same table."""

    def __init__(
        self, *, edges: int = 3, bootstrap: Bootstrap = "units", upstream: Upstream = "units", seed: int = 1
    ) -> None:
        self.plan = region_plan(edges)
        name = f"edge-a{edges - 1}"
        layout = layout_fields(self.plan)
        handshake = Handshake(name, 5, PROTOCOL_VERSION, 1, layout)
        self.view = DictView()
        self.follower = IndexFollower(0, self.view, handshake, stale_after_us=STALE_US)
        relay = ViewRelay(self.follower, self.view, edge_id=name, layout=layout, plan_version=1)
        self.choice = UpstreamChoice(self.plan, name, 0, bootstrap=bootstrap, upstream=upstream)
        self.feed = ShardFeed(relay, self.choice, Random(seed))
        self.now_us = 0
        self.epoch = 7
        self._tables = DictTables()
        self._sequence = 0
        self.edit()

    @property
    def state(self) -> FollowerState:
        return self.follower.state(self.now_us)

    def edit(self) -> PatchGroups:
        """A change of the table, as it is told."""
        edits = edits_of(1, {self._sequence % 9: 1 + self._sequence % 2})
        patches = self._tables.edit(edits.keys, 0, 0, edits.tiers)
        first, self._sequence = self._sequence + 1, self._sequence + patches.groups
        return PatchGroups(self.epoch, first, patches.groups, patches.payload)

    def watermark(self) -> Watermark:
        return Watermark(self.epoch, self._sequence, self._tables.digest())

    def snapshot(self, chunks: int = 1) -> list[SnapshotChunk]:
        data, digest = self._tables.snapshot(), self._tables.digest()
        size = -(-len(data) // chunks)
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        assert len(parts) == chunks
        return [
            SnapshotChunk(self.epoch, self._sequence, digest, number, chunks, part)
            for number, part in enumerate(parts)
        ]

    def open(self) -> Opening:
        return self.feed.open(self.now_us)

    def tell(self, message: UnitToEdge) -> Resubscribe | Acknowledgement | None:
        return self.feed.on_message(message, self.now_us)

    def end(self, ended: Resubscribe = LOST) -> Ended:
        return self.feed.ended(ended, self.now_us)

    def exact(self) -> "FedShard":
        """With a stream that goes on, to whoever is chosen first."""
        self.open()
        assert self.tell(*self.snapshot()) == Acknowledgement(self._sequence)
        assert self.state is FollowerState.EXACT
        return self
