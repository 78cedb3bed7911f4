"""A subscriber gets a snapshot or the missed suffix, then every patch group once, in order, within bounds."""

from hypothesis import given
from hypothesis import strategies as st

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    STREAM_FIELD,
    Acknowledgement,
    Handshake,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    SubscribeRequest,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_table import DictTables, DictView

PLAN = replication_plan()
LAYOUT = layout_fields(PLAN)


class Shard:
    """A unit whose workers have all reported, and one of them that edits."""

    def __init__(self, *, rebuild_every: int = 0, **bounds: int) -> None:
        self.tables = DictTables(rebuild_every)
        self.unit = MaintenanceUnit(
            PLAN,
            "unit-0",
            epoch=10,
            layout=LAYOUT,
            tables=self.tables,
            now_us=0,
            bounds=UnitBounds(**bounds),
        )
        self.agents = [TwinAgent(worker, LAYOUT) for worker in WORKERS]
        opened = [self.unit.agent_connected(agent.hello(), 0) for agent in self.agents]
        self.sessions = [pair[0] for pair in opened if not isinstance(pair, Refusal)]

    def edit(self, tiers: dict[int, int]) -> None:
        self.unit.on_agent_message(self.sessions[0], self.agents[0].edit(tiers), 0)

    def subscribe(
        self, epoch: int = 0, applied: int = 0, now_us: int = 0, edge: str = "edge-a"
    ) -> Subscription:
        handshake = Handshake(edge, 5, PROTOCOL_VERSION, 1, LAYOUT)
        opened = self.unit.subscribe(SubscribeRequest(handshake, epoch, applied), now_us)
        assert isinstance(opened, Subscription)
        return opened

    def drain(self, subscription: Subscription, now_us: int = 0) -> list[UnitToEdge]:
        messages: list[UnitToEdge] = []
        while batch := self.unit.take(subscription, now_us):
            messages += batch
        return messages


def kinds(messages: list[UnitToEdge]) -> list[type]:
    return [type(message) for message in messages]


def test_a_new_subscriber_gets_a_snapshot_then_patches_that_make_its_view_equal():
    shard, view = Shard(chunk_bytes=16), DictView()
    shard.edit(dict.fromkeys(range(5), 1))
    subscription = shard.subscribe()
    snapshot = shard.drain(subscription)
    assert kinds(snapshot) == [SnapshotChunk] * 4 + [Watermark]
    chunks = [message for message in snapshot if isinstance(message, SnapshotChunk)]
    assert [chunk.chunk for chunk in chunks] == [0, 1, 2, 3]
    assert {chunk.chunks for chunk in chunks} == {4}
    assert max(len(chunk.payload) for chunk in chunks) <= 16
    view.load_snapshot(0, b"".join(chunk.payload for chunk in chunks), chunks[0].sequence, chunks[0].digest)
    shard.edit({1: 0, 9: 2})
    (patches,) = shard.drain(subscription)
    assert isinstance(patches, PatchGroups)
    view.apply(0, patches.first_sequence, patches.count, patches.payload)
    assert view.fields == shard.tables.fields
    assert view.sequence == shard.unit.sequence


def test_an_empty_shard_is_a_snapshot_of_one_chunk():
    shard = Shard()
    assert kinds(shard.drain(shard.subscribe())) == [SnapshotChunk, Watermark]


def test_a_returning_subscriber_gets_only_what_it_missed():
    shard = Shard()
    shard.edit({1: 1, 2: 1})
    shard.edit({3: 1})
    groups, watermark = shard.drain(shard.subscribe(epoch=10, applied=2))
    assert isinstance(groups, PatchGroups)
    assert (groups.first_sequence, groups.count) == (3, 1)
    assert watermark == Watermark(10, 3, shard.tables.digest())
    assert shard.unit.counters.snapshots == 0


def test_a_subscriber_of_another_epoch_or_of_the_future_gets_a_snapshot():
    shard = Shard()
    shard.edit({1: 1})
    for epoch, applied in ((9, 1), (10, 2)):
        assert kinds(shard.drain(shard.subscribe(epoch, applied)))[0] is SnapshotChunk


def test_a_subscriber_that_falls_off_the_log_gets_a_snapshot_and_is_counted():
    shard = Shard(log_groups=4)
    subscription = shard.subscribe()
    shard.drain(subscription)
    shard.edit({1: 1, 2: 1, 3: 1})
    assert kinds(shard.drain(subscription)) == [PatchGroups]
    for key in range(10):
        shard.edit({key: 2})
    assert kinds(shard.drain(subscription)) == [SnapshotChunk]
    assert (shard.unit.counters.overflows, shard.unit.counters.snapshots) == (1, 2)


def test_a_rebuild_sends_every_subscriber_a_snapshot_at_a_new_sequence():
    shard = Shard(rebuild_every=2)
    subscriptions = [shard.subscribe(), shard.subscribe(edge="edge-b")]
    for subscription in subscriptions:
        shard.drain(subscription)
    shard.edit({1: 1})
    shard.edit({2: 1})
    assert shard.unit.sequence == 2
    for subscription in subscriptions:
        (snapshot,) = shard.drain(subscription)
        assert isinstance(snapshot, SnapshotChunk)
        assert (snapshot.sequence, snapshot.digest) == (2, shard.tables.digest())
    assert (shard.unit.counters.rebuilds, shard.unit.counters.overflows) == (1, 0)


def test_a_patch_that_comes_while_a_snapshot_is_sent_follows_it():
    shard = Shard(chunk_bytes=16)
    shard.edit(dict.fromkeys(range(5), 1))
    subscription = shard.subscribe()
    (first,) = shard.unit.take(subscription, 0)
    assert isinstance(first, SnapshotChunk)
    shard.edit({7: 1})
    rest = shard.drain(subscription)
    assert kinds(rest) == [SnapshotChunk] * 3 + [PatchGroups, Watermark]
    assert isinstance(rest[3], PatchGroups)
    assert rest[3].first_sequence == first.sequence + 1


def test_a_snapshot_reaches_its_subscriber_although_edits_never_pause():
    """Copying ends and the next edit is made before the subscriber comes to take what was copied."""
    shard, view = Shard(), DictView()
    shard.tables.snapshot_parts = 4
    subscriptions = [shard.subscribe(), shard.subscribe(edge="edge-b")]
    taken: list[list[UnitToEdge]] = [[], []]
    for key in range(9):
        shard.edit({key: 1})
        while shard.unit.work(shard.sessions[0], 0):
            pass
        for subscription, messages in zip(subscriptions, taken, strict=True):
            messages += shard.unit.take(subscription, 0)
    for subscription, messages in zip(subscriptions, taken, strict=True):
        messages += shard.drain(subscription)
    assert {messages[0] for messages in taken} == {taken[0][0]}, "one copy is made for both"
    for message in taken[1]:
        if isinstance(message, SnapshotChunk):
            view.load_snapshot(0, message.payload, message.sequence, message.digest)
        elif isinstance(message, PatchGroups):
            view.apply(0, message.first_sequence, message.count, message.payload)
    assert view.fields == shard.tables.fields


def test_messages_are_cut_at_their_bound_of_groups():
    shard = Shard(message_groups=4)
    subscription = shard.subscribe(epoch=10)
    for key in range(10):
        shard.edit({key: 1})
    messages = [message for message in shard.drain(subscription) if isinstance(message, PatchGroups)]
    assert [message.count for message in messages] == [4, 4, 2]


def test_watermarks_come_at_their_period_when_idle_too_and_only_at_the_newest_sequence():
    shard = Shard()
    subscription = shard.subscribe()
    shard.drain(subscription)
    assert shard.drain(subscription, S - 1) == []
    assert kinds(shard.drain(subscription, S)) == [Watermark]
    shard.edit({1: 1})
    groups, watermark = shard.drain(subscription, 2 * S)
    assert isinstance(groups, PatchGroups)
    assert watermark == Watermark(10, 1, shard.tables.digest())


def test_a_unit_that_has_not_been_refilled_gives_out_nothing():
    tables = DictTables()
    unit = MaintenanceUnit(PLAN, "unit-0", epoch=11, layout=LAYOUT, tables=tables, now_us=0)
    handshake = Handshake("edge-a", 5, PROTOCOL_VERSION, 1, LAYOUT)
    subscription = unit.subscribe(SubscribeRequest(handshake, 10, 3), 0)
    assert isinstance(subscription, Subscription)
    assert unit.take(subscription, 5 * S) == []
    unit.tick(6 * S)
    assert kinds(unit.take(subscription, 6 * S)) == [SnapshotChunk]


def test_acknowledgements_are_kept_for_each_subscriber_and_never_go_back():
    shard = Shard()
    subscription = shard.subscribe(epoch=10)
    shard.edit({1: 1, 2: 1, 3: 1})
    shard.unit.acknowledged(subscription, Acknowledgement(2))
    assert shard.unit.subscriber_lags() == {"edge-a": 3}, "it was not sent that: it speaks of another epoch"
    shard.drain(subscription)
    shard.unit.acknowledged(subscription, Acknowledgement(2))
    shard.unit.acknowledged(subscription, Acknowledgement(1))
    assert shard.unit.subscriber_lags() == {"edge-a": 1}
    shard.unit.unsubscribe(subscription)
    assert shard.unit.subscriber_lags() == {}


def test_another_layout_and_too_many_subscribers_are_refused_by_name():
    shard = Shard(subscriptions=1)
    handshake = Handshake("edge-a", 5, PROTOCOL_VERSION, 1, {**LAYOUT, "shards": "9"})
    refusal = shard.unit.subscribe(SubscribeRequest(handshake, 0, 0), 0)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "shards"
    shard.subscribe()
    handshake = Handshake("edge-b", 5, PROTOCOL_VERSION, 1, LAYOUT)
    refusal = shard.unit.subscribe(SubscribeRequest(handshake, 0, 0), 0)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "subscriptions"


def test_a_subscriber_has_one_stream_and_the_older_one_is_told_so_once():
    shard = Shard()
    old = shard.subscribe()
    shard.drain(old)
    new = shard.subscribe(epoch=10)
    shard.edit({1: 1})
    (refusal,) = shard.drain(old)
    assert isinstance(refusal, Refusal)
    assert refusal.field == STREAM_FIELD, "it may come again at once"
    assert kinds(shard.drain(new)) == [PatchGroups, Watermark]
    assert shard.unit.subscriber_lags() == {"edge-a": 1}
    shard.unit.acknowledged(new, Acknowledgement(1))
    shard.unit.unsubscribe(old)
    assert shard.unit.subscriber_lags() == {"edge-a": 0}
    assert shard.unit.counters.superseded_subscribers == 1
    shard.unit.unsubscribe(new)
    shard.subscribe()
    assert shard.unit.counters.superseded_subscribers == 1, "a stream that had ended is none to replace"


def test_one_that_waits_for_a_unit_to_settle_is_told_too_that_it_is_over():
    unit = MaintenanceUnit(PLAN, "unit-0", epoch=10, layout=LAYOUT, tables=DictTables(), now_us=0)
    request = SubscribeRequest(Handshake("edge-a", 5, PROTOCOL_VERSION, 1, LAYOUT), 0, 0)
    old, new = unit.subscribe(request, 0), unit.subscribe(request, 0)
    assert isinstance(old, Subscription)
    assert isinstance(new, Subscription)
    assert kinds(unit.take(old, 0)) == [Refusal]
    assert unit.take(new, 0) == []


@given(st.lists(st.sampled_from(["edge-a", "edge-b", "x", "y", "z", "w"]), max_size=12), st.integers(2, 5))
def test_whoever_comes_first_the_plans_edges_have_room(arrivals: list[str], bound: int):
    """The plan has edge-a and edge-b. Nobody leaves."""
    shard, present = Shard(subscriptions=bound), set[str]()
    for arrival in (*arrivals, "edge-a", "edge-b"):
        request = SubscribeRequest(Handshake(arrival, 5, PROTOCOL_VERSION, 1, LAYOUT), 0, 0)
        opened = shard.unit.subscribe(request, 0)
        if isinstance(opened, Subscription):
            present.add(arrival)
        else:
            assert arrival not in present, "who is there already takes its own place"
            strangers = present - {"edge-a", "edge-b"}
            assert len(strangers) == bound - 2, "no room is left unused"
        assert shard.unit.subscriber_lags().keys() == present
    assert {"edge-a", "edge-b"} <= present
    assert len(present) <= bound
