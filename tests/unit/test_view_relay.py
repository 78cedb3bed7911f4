"""What an edge passes on of a shard, message by message, and when it passes on nothing."""

import itertools
from dataclasses import replace

import pytest

from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Handshake,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    SubscribeRequest,
    Unavailable,
    UnavailableReason,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.subscription import Subscription
from tests.models.relay_region import LOST, Node, Region
from tests.models.replication_fleet import S
from tests.models.replication_table import DictView

NOT_EXACT = [Unavailable(UnavailableReason.NOT_EXACT)]
FOLLOWS_EDGE = [Unavailable(UnavailableReason.FOLLOWS_EDGE)]


_others = itertools.count()


@pytest.fixture
def region() -> Region:
    """An edge that follows the unit, and nobody else."""
    region = Region(edges=1)
    for key in range(20, 24):
        region.unit.edit(key, 1)
    region.run(3)
    assert region.edges[0].state is FollowerState.EXACT
    return region


@pytest.fixture
def node(region: Region) -> Node:
    return region.edges[0]


def subscribe(node: Node, epoch: int = 0, applied: int = 0) -> Subscription:
    opened = node.subscribe(request(node, epoch, applied))
    assert isinstance(opened, Subscription)
    return opened


def request(node: Node, epoch: int = 0, applied: int = 0) -> SubscribeRequest:
    """Of somebody else each time."""
    handshake = Handshake(f"another-{next(_others)}", 1, PROTOCOL_VERSION, 1, node.region.layout)
    return SubscribeRequest(handshake, epoch, applied)


def resume(node: Node) -> Subscription:
    return subscribe(node, node.follower.unit_epoch, node.follower.applied_sequence)


def drain(node: Node, subscription: Subscription) -> list[UnitToEdge]:
    messages: list[UnitToEdge] = []
    while (batch := node.take(subscription)) or node.relay.is_copying:
        messages += batch
        node.relay.copy_part()
    return messages


def take_first_chunk(node: Node, subscription: Subscription) -> SnapshotChunk:
    while not (batch := node.take(subscription)):
        assert node.relay.is_copying
        node.relay.copy_part()
    (chunk,) = batch
    assert isinstance(chunk, SnapshotChunk) and chunk.chunks > 1
    return chunk


def chunks(messages: list[UnitToEdge]) -> list[SnapshotChunk]:
    return [message for message in messages if isinstance(message, SnapshotChunk)]


def test_a_snapshot_is_the_units_at_the_sequence_of_the_view(region, node):
    subscription = subscribe(node)
    assert node.take(subscription) == [], "it is being copied"
    found = chunks(drain(node, subscription))
    assert [chunk.chunk for chunk in found] == list(range(len(found)))
    assert {(chunk.unit_epoch, chunk.sequence, chunk.digest) for chunk in found} == {
        (region.unit.epoch, region.unit.desk.sequence, region.unit.tables.digest())
    }
    view = DictView()
    view.load_snapshot(0, b"".join(chunk.payload for chunk in found), 8, found[0].digest)
    assert view.fields == region.unit.tables.fields
    assert node.relay.counters.payload_bytes == sum(len(chunk.payload) for chunk in found)


def test_patches_are_passed_on_as_they_came_and_each_watermark_once(region, node):
    subscription = resume(node)
    came: list[UnitToEdge] = []
    stream = node.stream
    assert stream is not None
    for key in range(2, 6):
        region.unit.edit(key, 1)
        region.step()
        came += stream.queue
        while stream.queue:
            node.deliver()
    region.run(1.2)
    passed = drain(node, subscription)
    patches = [message for message in passed if isinstance(message, PatchGroups)]
    assert patches == [message for message in came if isinstance(message, PatchGroups)]
    assert passed[-1] == Watermark(region.unit.epoch, region.unit.desk.sequence, region.unit.tables.digest())
    assert drain(node, subscription) == []
    region.run(2.2)
    assert len(drain(node, subscription)) == 1, "the newest of two"


def test_a_watermark_from_before_the_stream_is_no_news(region, node):
    subscription = resume(node)
    assert drain(node, subscription) == []
    region.run(1.2)
    assert [type(message) for message in drain(node, subscription)] == [Watermark]


def test_a_watermark_is_told_at_its_place(region, node):
    subscription = resume(node)
    region.run(1.2)
    region.unit.edit(7, 1)
    region.run(0.1)
    passed = drain(node, subscription)
    assert [type(message) for message in passed] == [PatchGroups]
    late = subscribe(node, region.unit.epoch, region.unit.desk.sequence + 4)
    region.run(1.2)
    assert drain(node, late) == [], "it is ahead of this view, by what is on its way here"
    for key in (8, 9):
        region.unit.edit(key, 1)
    region.run(1.2)
    assert [type(message) for message in drain(node, late)] == [Watermark]


def test_a_message_that_came_again_with_more_is_passed_on_whole(region, node):
    subscription = resume(node)
    epoch, first = region.unit.epoch, region.unit.desk.sequence + 1
    for key in (2, 3):
        region.unit.edit(key, 1)
    log = region.unit.desk._log._entries
    one, two = (replace_with(entry.payload, entry.first, entry.groups, epoch) for entry in log[-2:])
    both = PatchGroups(epoch, one.first_sequence, one.count + two.count, one.payload + two.payload)
    for message in (one, both, one, both):
        assert node.relay.on_message(message, region.now_us) is None
    assert drain(node, subscription) == [one, both]
    assert drain(node, resume(node)) == []
    again = subscribe(node, epoch, first + one.count - 1)
    assert drain(node, again) == [both]


def replace_with(payload: bytes, first: int, count: int, epoch: int) -> PatchGroups:
    return PatchGroups(epoch, first, count, payload)


def test_a_view_that_is_replaced_is_told_as_it_is_and_not_as_it_was(region, node):
    half, begins, done = subscribe(node), subscribe(node), resume(node)
    first = take_first_chunk(node, half)
    region.unit.rebuild()
    region.run(1.2)
    assert node.follower.counters.snapshots == 2
    for subscription in (half, begins, done):
        found = chunks(drain(node, subscription))
        assert found[0].chunk == 0
        assert {chunk.sequence for chunk in found} == {region.unit.desk.sequence}
    assert first.sequence < region.unit.desk.sequence


def test_another_epoch_of_the_unit_begins_with_a_snapshot_for_everybody(region, node):
    for key in range(2, 9):
        region.unit.edit(key, 1)
    region.run(1.2)
    subscription = resume(node)
    node.relay.acknowledged(subscription, Acknowledgement(node.follower.applied_sequence))
    region.restart_unit()
    region.run(1.2)
    assert node.follower.unit_epoch == region.unit.epoch
    node.relay.acknowledged(subscription, Acknowledgement(region.unit.desk.sequence + 10))
    assert chunks(drain(node, subscription))[0].unit_epoch == region.unit.epoch
    assert node.relay.acknowledgement() == Acknowledgement(0), "that was said of the epoch before"
    node.relay.acknowledged(subscription, node.follower.acknowledgement())
    assert node.relay.acknowledgement() == Acknowledgement(region.unit.desk.sequence)


def test_the_life_before_of_the_unit_is_given_to_nobody_who_is_in_the_next():
    """One edge has not heard yet, and is EXACT in the life before, when the other would go over to it."""
    region = Region(edges=2, upstream="units")
    region.run(3)
    before, after = region.edges
    before.reads = False
    region.restart_unit()
    region.run(1)
    assert (before.state, after.state) == (FollowerState.EXACT, FollowerState.EXACT)
    assert (before.follower.unit_epoch, after.follower.unit_epoch) == (1, 2)
    assert before.subscribe(after.follower.resume_request()) == NOT_EXACT[0]
    assert isinstance(after.subscribe(before.follower.resume_request()), Subscription)
    before.reads = True
    region.run(1.5)
    assert isinstance(before.subscribe(after.follower.resume_request()), Subscription)


def test_a_view_of_a_life_that_this_one_has_left_is_given_the_present_one(region, node):
    epoch, applied = region.unit.epoch, node.follower.applied_sequence
    for _ in range(2):
        region.restart_unit()
        region.run(1.5)
    assert isinstance(node.subscribe(request(node, epoch, applied)), Subscription)
    assert isinstance(node.subscribe(request(node, epoch + 1, applied)), Subscription)
    assert node.subscribe(request(node, epoch + 3, applied)) == NOT_EXACT[0]


def test_a_view_does_not_go_back_to_a_life_that_it_has_left(region, node):
    """Not of a neighbour either that it asks for a snapshot, since its own view is wrong."""
    old = chunks(drain(node, subscribe(node)))
    region.restart_unit()
    region.run(1.5)
    node.relay.follows(an_edge=True)
    ended = [node.relay.on_message(chunk, region.now_us) for chunk in old]
    assert [each and each.reason for each in ended] == [None] * (len(old) - 1) + [
        ResubscribeReason.UNAVAILABLE
    ]
    assert node.follower.unit_epoch == region.unit.epoch
    node.check()


def test_a_unit_that_is_still_corrected_is_not_passed_on_to_a_view_that_may_know_more(region, node):
    subscription = resume(node)
    drain(node, subscription)
    region.restart_unit()
    region.unit.desk.unsettled = True
    region.run(1.2)
    assert node.follower.unit_epoch == region.unit.epoch
    new, of_another_epoch = subscribe(node), subscribe(node, region.unit.epoch - 1, 3)
    assert chunks(drain(node, new)), "it knows nothing"
    assert drain(node, subscription) == drain(node, of_another_epoch) == []
    before = region.unit.desk.sequence
    region.unit.edit(7, 1)
    region.unit.desk.settled()
    region.run(2.2)
    for waited in (subscription, of_another_epoch):
        sent = chunks(drain(node, waited))
        assert sent and {chunk.sequence for chunk in sent} == {region.unit.desk.sequence} != {before}


def test_while_the_view_is_verified_patches_are_passed_on_and_snapshots_are_not(region, node):
    going, begins = resume(node), subscribe(node)
    drain(node, begins)
    halfway = subscribe(node)
    take_first_chunk(node, halfway)
    node._end(LOST)
    assert node.state is FollowerState.CATCHING_UP
    assert node.subscribe(request(node)) == NOT_EXACT[0]
    assert node.take(halfway) == []
    region.unit.edit(7, 1)
    while node.follower.applied_sequence < region.unit.desk.sequence:
        region.step()
        if node.stream and node.stream.queue and isinstance(node.stream.queue[0], PatchGroups):
            node.deliver()
    assert node.state is FollowerState.CATCHING_UP
    assert [type(message) for message in drain(node, going)] == [PatchGroups]
    assert node.take(halfway) == []
    region.run(1.2)
    assert node.state is FollowerState.EXACT
    assert chunks(node.take(halfway))


def test_nothing_is_passed_on_of_a_view_that_is_stale(region, node):
    subscription = resume(node)
    region.cut.add(frozenset((node.name, "unit-0")))
    region.run(3.2)
    assert node.take(subscription) == NOT_EXACT
    assert node.subscribe(request(node)) == NOT_EXACT[0]


def test_who_begins_to_follow_an_edge_ends_what_it_serves_for_good(region, node):
    """Also of those who did not read meanwhile."""
    subscription = resume(node)
    node.relay.follows(an_edge=True)
    assert node.relay.subscribers == 0
    assert node.subscribe(request(node)) == FOLLOWS_EDGE[0]
    node.relay.follows(an_edge=False)
    assert node.relay.take(subscription, region.now_us) == FOLLOWS_EDGE
    node.unsubscribe(subscription)
    assert node.relay.subscribers == 0
    assert isinstance(node.subscribe(request(node)), Subscription)


def test_the_copy_of_a_view_is_given_up_with_the_last_who_needs_it(region, node):
    first, second = subscribe(node), subscribe(node)
    drain(node, first)
    assert node.relay._desk._snapshot is not None
    drain(node, second)
    assert node.relay._desk._snapshot is None
    third = subscribe(node)
    take_first_chunk(node, third)
    node.unsubscribe(third)
    assert node.relay._desk._snapshot is None
    assert node.relay.counters.snapshots == 3


def test_a_copy_whose_only_taker_has_left_meanwhile_is_given_up_when_it_is_whole(region, node):
    """Nothing else would come along on a shard that does not change."""
    subscription = subscribe(node)
    assert node.take(subscription) == [] and node.relay.is_copying
    node.unsubscribe(subscription)
    while node.relay.is_copying:
        node.relay.copy_part()
    assert node.relay._desk._snapshot is None


def test_an_edge_does_not_follow_itself_and_serves_so_many(region, node):
    own = replace(request(node), handshake=replace(request(node).handshake, component_id=node.name))
    refusal = node.subscribe(own)
    assert isinstance(refusal, Refusal) and refusal.field == "component_id"
    assert node.relay.counters.refusals == 1


@pytest.mark.parametrize(("an_edge", "left"), [(True, ResubscribeReason.SILENCE), (False, None)])
def test_an_edge_that_passes_on_no_word_of_the_unit_is_left(region, node, an_edge, left):
    """Its patches alone would keep the view EXACT, and nobody would compare it with anything."""
    node.relay.follows(an_edge=an_edge)
    ended = None
    for key in range(12):
        region.unit.edit(30 + key, 1)
        entry = region.unit.desk._log._entries[-1]
        patches = PatchGroups(region.unit.epoch, entry.first, entry.groups, entry.payload)
        assert ended is None
        ended = node.relay.on_message(patches, region.now_us + key * S)
    assert (ended.reason if ended else None) == left
    node.relay.follows(an_edge=an_edge)
    watermark = Watermark(region.unit.epoch, region.unit.desk.sequence, region.unit.tables.digest())
    for second in range(12, 40):
        assert node.relay.on_message(watermark, region.now_us + second * S) is None
