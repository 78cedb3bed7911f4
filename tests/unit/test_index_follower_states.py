"""A follower's state never claims more than it knows, and a served shard is never emptied by a resync."""

import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Handshake,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from tests.models.replication_agent import edits_of
from tests.models.replication_fleet import S, replication_plan
from tests.models.replication_table import DictTables, DictView

HANDSHAKE = Handshake("edge-a", 5, PROTOCOL_VERSION, 1, layout_fields(replication_plan()))
STALE_US = 3 * S


class Followed:
    """A follower with its view, and the table it should be equal to."""

    def __init__(self) -> None:
        self.tables = DictTables()
        self.sequence = 0
        self.epoch = 7
        self.view = DictView()
        self.follower = IndexFollower(0, self.view, HANDSHAKE, stale_after_us=STALE_US)

    def edit(self, tiers: dict[int, int]) -> PatchGroups:
        edits = edits_of(1, tiers)
        patches = self.tables.edit(edits.keys, 0, 0, edits.tiers)
        first, self.sequence = self.sequence + 1, self.sequence + patches.groups
        return PatchGroups(self.epoch, first, patches.groups, patches.payload)

    def snapshot(self, chunks: int = 1) -> list[UnitToEdge]:
        data = self.tables.snapshot()
        size = -(-len(data) // chunks)
        return [
            SnapshotChunk(
                self.epoch, self.sequence, self.tables.digest(), i, chunks, data[i * size : (i + 1) * size]
            )
            for i in range(chunks)
        ]

    def watermark(self) -> Watermark:
        return Watermark(self.epoch, self.sequence, self.tables.digest())

    def tell(self, *messages: UnitToEdge, now_us: int = 0) -> Resubscribe | None:
        verdict = None
        for message in messages:
            assert verdict is None, verdict
            verdict = self.follower.on_message(message, now_us)
        return verdict

    def following(self) -> "Followed":
        """With one key loaded."""
        self.edit({1: 1})
        assert self.tell(*self.snapshot()) is None
        return self


def reason(verdict: Resubscribe | None) -> ResubscribeReason | None:
    return verdict.reason if verdict else None


def test_a_shard_is_absent_until_its_first_snapshot_is_whole():
    f = Followed()
    f.edit({1: 1, 2: 2, 3: 1})
    assert f.follower.state(0) is FollowerState.ABSENT
    first, second, third = f.snapshot(chunks=3)
    f.tell(first, second)
    assert f.follower.state(0) is FollowerState.ABSENT
    assert not f.view.present
    f.tell(third)
    assert f.follower.state(0) is FollowerState.EXACT
    assert f.view.fields == f.tables.fields
    assert f.follower.acknowledgement() == Acknowledgement(3)


def test_patches_in_order_keep_the_view_exact_and_duplicates_change_nothing():
    f = Followed().following()
    first, second = f.edit({1: 2}), f.edit({1: 0, 4: 1})
    assert f.tell(first, second, first, second, f.watermark()) is None
    assert f.view.fields == f.tables.fields
    assert f.follower.state(0) is FollowerState.EXACT
    assert (f.follower.counters.groups, f.follower.counters.old_groups) == (3, 3)


def test_a_gap_asks_for_what_is_missing_and_serves_on():
    f = Followed().following()
    f.edit({2: 1})
    assert reason(f.tell(f.edit({3: 1}))) is ResubscribeReason.GAP
    f.follower.stream_ended(ResubscribeReason.GAP)
    assert f.follower.state(0) is FollowerState.CATCHING_UP
    assert f.view.fields == {(1, 0, 0): 1}
    request = f.follower.subscribe_request()
    assert (request.unit_epoch, request.applied_sequence) == (7, 1)


def test_a_watermark_ahead_of_the_view_shows_a_loss_and_one_behind_is_old():
    f = Followed().following()
    old = f.watermark()
    f.tell(f.edit({2: 1}))
    assert f.tell(old) is None
    f.edit({3: 1})
    assert reason(f.tell(f.watermark())) is ResubscribeReason.BEHIND


def test_a_digest_that_differs_forces_a_snapshot_which_replaces_an_equal_sequence():
    f = Followed().following()
    f.view.fields[9, 0, 0] = 1
    assert reason(f.tell(f.watermark())) is ResubscribeReason.DIGEST
    assert f.follower.counters.digest_mismatches == 1
    assert f.follower.state(0) is FollowerState.CATCHING_UP
    request = f.follower.subscribe_request()
    assert (request.unit_epoch, request.applied_sequence) == (0, 0)
    assert f.tell(*f.snapshot()) is None
    assert f.view.fields == f.tables.fields
    assert f.follower.state(0) is FollowerState.EXACT


def test_silence_makes_a_view_stale_but_it_is_kept():
    f = Followed().following()
    assert f.follower.state(STALE_US) is FollowerState.EXACT
    assert f.follower.state(STALE_US + 1) is FollowerState.STALE
    assert f.follower.age_us(STALE_US + 1) == STALE_US + 1
    assert f.view.fields == f.tables.fields
    f.tell(f.watermark(), now_us=STALE_US + 2)
    assert f.follower.state(STALE_US + 2) is FollowerState.EXACT


def test_decisions_are_blind_by_a_shard_that_is_not_loaded_or_not_heard_of():
    f = Followed()
    assert f.follower.state(0).is_blind
    f.following()
    assert not f.follower.state(STALE_US).is_blind
    f.follower.stream_ended(ResubscribeReason.LOST)
    assert not f.follower.state(STALE_US).is_blind, "it is catching up"
    assert f.follower.state(STALE_US + 1).is_blind
    f.follower.forget()
    assert f.follower.state(STALE_US + 1).is_blind


def test_a_restarted_unit_is_followed_only_from_its_snapshot_on():
    f = Followed().following()
    f.epoch, f.tables, f.sequence = 8, DictTables(), 0
    patches = f.edit({5: 1})
    assert reason(f.tell(patches)) is ResubscribeReason.EPOCH
    f.follower.stream_ended(ResubscribeReason.EPOCH)
    assert f.view.fields == {(1, 0, 0): 1}, "served on"
    f.follower.subscribe_request()
    assert f.tell(*f.snapshot()) is None
    assert f.view.fields == {(5, 0, 0): 1}
    assert f.follower.unit_epoch == 8


def test_a_snapshot_that_comes_to_nothing_leaves_the_view_as_it_was():
    f = Followed().following()
    f.edit({2: 1, 3: 1, 4: 1})
    first, second, third = f.snapshot(chunks=3)
    assert reason(f.tell(first, third)) is ResubscribeReason.BROKEN
    f.follower.stream_ended(ResubscribeReason.BROKEN)
    f.follower.subscribe_request()
    assert reason(f.tell(second)) is ResubscribeReason.BROKEN
    f.follower.subscribe_request()
    assert isinstance(third, SnapshotChunk)
    torn = SnapshotChunk(7, third.sequence, third.digest, 0, 1, third.payload)
    assert reason(f.tell(torn)) is ResubscribeReason.BROKEN
    assert f.view.fields == {(1, 0, 0): 1}


def test_an_older_snapshot_of_the_same_epoch_does_not_take_the_view_back():
    f = Followed().following()
    old = f.snapshot()
    f.tell(f.edit({1: 0, 2: 2}))
    assert f.tell(*old) is None
    assert f.view.fields == f.tables.fields
    assert f.follower.applied_sequence == f.sequence


def test_malformed_patches_force_a_snapshot():
    f = Followed().following()
    patches = f.edit({2: 1})
    torn = PatchGroups(7, patches.first_sequence, patches.count, patches.payload[:-1])
    assert reason(f.tell(torn)) is ResubscribeReason.BROKEN
    request = f.follower.subscribe_request()
    assert (request.unit_epoch, request.loaded) == (0, True)


def test_a_snapshot_has_a_bound():
    f = Followed()
    f.edit({1: 1, 2: 1})
    f.follower = IndexFollower(0, f.view, HANDSHAKE, snapshot_bytes=12)
    assert reason(f.tell(*f.snapshot())) is ResubscribeReason.BROKEN
    assert not f.view.present


def test_a_refusal_is_kept_until_the_unit_accepts():
    f = Followed()
    refusal = Refusal("shards", "2 here, 3 there")
    assert reason(f.tell(refusal)) is ResubscribeReason.REFUSED
    assert f.follower.refusal == refusal
    f.following()
    assert f.follower.refusal is None


@pytest.mark.parametrize("ended", [each for each in ResubscribeReason if each is not ResubscribeReason.MOVED])
def test_a_stream_that_ends_is_counted_and_the_view_no_longer_exact(ended):
    f = Followed().following()
    f.follower.stream_ended(ended)
    assert f.follower.state(0) is FollowerState.CATCHING_UP
    f.follower.subscribe_request()
    assert not f.follower.was_exact
    assert f.follower.counters.resubscriptions == {ended: 1}


def test_a_stream_that_goes_on_elsewhere_leaves_the_view_as_exact_as_it_was():
    f = Followed().following()
    f.follower.stream_ended(ResubscribeReason.MOVED)
    f.follower.subscribe_request()
    assert f.follower.state(0) is FollowerState.EXACT
    assert f.follower.state(STALE_US + 1) is FollowerState.STALE, "nothing has been heard meanwhile"
    f.edit({2: 1})
    assert reason(f.tell(f.watermark())) is ResubscribeReason.BEHIND
    f.follower.stream_ended(ResubscribeReason.BEHIND)
    f.follower.stream_ended(ResubscribeReason.MOVED)
    assert f.follower.state(0) is FollowerState.CATCHING_UP


def test_a_snapshot_that_will_not_be_whole_is_dropped_at_once() -> None:
    """Its memory would be held until the next one."""
    followed = Followed()
    followed.tell(*followed.snapshot())
    followed.edit({1: 1, 2: 1, 3: 1})
    followed.tell(*followed.snapshot(3)[:2])
    assert followed.view.drops == 0
    followed.follower.stream_ended(ResubscribeReason.LOST)
    assert followed.view.drops == 1
    verdict = followed.follower.on_message(followed.snapshot(3)[1], 0)
    assert verdict is not None and verdict.reason is ResubscribeReason.BROKEN
    assert followed.view.drops == 1, "there was nothing to drop"


def test_nothing_is_acknowledged_on_a_stream_that_has_not_proved_to_be_of_the_views_epoch():
    f = Followed().following()
    assert f.follower.acknowledgement() == Acknowledgement(1)
    f.follower.stream_ended(ResubscribeReason.LOST)
    f.follower.subscribe_request()
    assert f.follower.acknowledgement() == Acknowledgement(0), "sequences of another epoch mean other groups"
    assert f.tell(f.watermark()) is None
    assert f.follower.acknowledgement() == Acknowledgement(1)


def test_a_new_handshake_that_a_server_asks_for_costs_no_trust():
    f = Followed().following()
    behind = Refusal("plan_version", "subscribe anew")
    assert reason(f.follower.on_message(behind, 0)) is ResubscribeReason.MOVED
    f.follower.stream_ended(ResubscribeReason.MOVED)
    assert f.follower.state(0) is FollowerState.EXACT
    f.follower.subscribe_request()
    assert reason(f.follower.on_message(behind, 0)) is ResubscribeReason.REFUSED


def test_what_a_plan_makes_doubtful_is_forgotten_and_asked_for_anew():
    f = Followed().following()
    f.follower.forget()
    f.follower.ask_anew()
    assert (f.follower.state(0), f.follower.loaded) == (FollowerState.ABSENT, False)
    assert reason(f.follower.on_message(f.watermark(), 0)) is ResubscribeReason.MOVED
    assert f.follower.subscribe_request().unit_epoch == 0
    assert f.tell(*f.snapshot()) is None
    assert f.follower.state(0) is FollowerState.EXACT
