"""How one shard is fed: what ends a stream, whom the next goes to and when, and what is said and counted."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.roles.backoff import FIRST_PAUSE_US, LONGEST_PAUSE_US
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.messages import Acknowledgement, Unavailable, UnavailableReason
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.upstream_choice import RETURN_AFTER_US, SourceKind
from kvcompass.roles.view_relay import UNCONFIRMED_US
from tests.models.fed_shard import LOST, STALE_US, FedShard
from tests.models.replication_fleet import S

MOVED = Resubscribe(ResubscribeReason.MOVED, "")


def reason(ended: object) -> ResubscribeReason | None:
    return ended.reason if isinstance(ended, Resubscribe) else None


# --- one stream ------------------------------------------------------------------------------------------


def test_a_stream_is_silent_so_long_after_it_began_and_after_each_message():
    fed = FedShard()
    fed.now_us = 5 * S
    fed.open()
    assert fed.feed.silent_at_us == 5 * S + STALE_US
    for message in (*fed.snapshot(), fed.edit(), fed.watermark()):
        fed.now_us += S
        fed.tell(message)
        assert fed.feed.silent_at_us == fed.now_us + STALE_US
    assert fed.feed.silence().reason is ResubscribeReason.SILENCE


def test_a_view_is_stale_no_sooner_than_its_stream_is_silent():
    fed = FedShard().exact()
    fed.now_us = fed.feed.silent_at_us
    assert fed.state is FollowerState.EXACT
    fed.now_us += 1
    assert fed.state is FollowerState.STALE


def test_what_a_watermark_or_a_snapshot_confirmed_is_acknowledged_once_and_patches_are_not():
    fed = FedShard()
    fed.open()
    assert fed.tell(*fed.snapshot()) == Acknowledgement(1)
    assert fed.tell(fed.watermark()) is None
    assert fed.tell(fed.edit()) is None
    assert fed.tell(fed.edit()) is None
    assert fed.tell(fed.watermark()) == Acknowledgement(3)
    assert fed.tell(fed.watermark()) is None


def test_a_stream_that_goes_on_acknowledges_nothing_that_its_request_did():
    fed = FedShard().exact()
    fed.tell(fed.edit())
    fed.end()
    assert fed.open().request.applied_sequence == 2
    assert fed.tell(fed.watermark()) is None
    fed.tell(fed.edit())
    assert fed.tell(fed.watermark()) == Acknowledgement(3)


def test_a_snapshot_at_the_sequence_where_the_view_was_is_acknowledged():
    """Whoever is asked for one knows of no view, and would wait for this one until the next change."""
    fed = FedShard().exact()
    differs = fed.tell(replace(fed.watermark(), digest=1))
    assert isinstance(differs, Resubscribe)
    fed.end(differs)
    fed.open()
    assert fed.tell(*fed.snapshot()) == Acknowledgement(1)


def test_a_snapshot_of_another_life_of_the_unit_is_acknowledged_though_it_is_as_far():
    fed = FedShard().exact()
    fed.end()
    fed.open()
    fed.epoch += 1
    assert fed.tell(*fed.snapshot()) == Acknowledgement(1)


def test_what_the_follower_refuses_ends_the_stream():
    fed = FedShard().exact()
    fed.edit()
    assert reason(fed.tell(fed.edit())) is ResubscribeReason.GAP


def test_an_edge_that_confirms_nothing_is_left():
    fed = FedShard(bootstrap="peer", upstream="edge").exact()
    for _ in range(UNCONFIRMED_US // S):
        fed.now_us += S
        assert fed.tell(fed.edit()) is None
    fed.now_us += 1
    assert reason(fed.tell(fed.edit())) is ResubscribeReason.SILENCE


def test_there_is_one_stream_at_a_time():
    fed = FedShard()
    with pytest.raises(AssertionError):
        fed.tell(*fed.snapshot())
    with pytest.raises(AssertionError):
        fed.end()
    fed.open()
    with pytest.raises(AssertionError):
        fed.open()


# --- the pause after it ----------------------------------------------------------------------------------


def test_pauses_grow_while_streams_are_of_no_use_and_are_short_after_one_that_was():
    fed = FedShard().exact()
    useless = []
    for _ in range(12):
        useless.append(fed.end().pause_us)
        fed.open()
    for number, pause_us in enumerate(useless):
        whole_us = min(FIRST_PAUSE_US * 2**number, LONGEST_PAUSE_US)
        assert whole_us / 2 <= pause_us <= whole_us
    fed.tell(fed.watermark())
    assert fed.end().pause_us <= FIRST_PAUSE_US


def test_where_every_third_message_is_lost_pauses_stay_short_as_long_as_the_view_comes_on():
    """No stream lives until a watermark finds the view complete, and yet each brings it on."""
    fed = FedShard().exact()
    fed.end()
    told = [fed.edit()]
    for _ in range(12):
        begins = fed.open().request.applied_sequence + 1
        for missing in (each for each in told if each.first_sequence >= begins):
            assert fed.tell(missing) is None
        told += [fed.edit(), fed.edit()]
        gap = fed.tell(told[-1])
        assert reason(gap) is ResubscribeReason.GAP
        assert fed.end(gap).pause_us <= FIRST_PAUSE_US


def test_a_stream_with_nothing_but_a_gap_is_of_no_use():
    fed = FedShard().exact()
    fed.end()
    fed.edit()
    pauses = []
    for _ in range(8):
        fed.open()
        pauses.append(fed.end(fed.tell(fed.edit())).pause_us)
    assert max(pauses) > LONGEST_PAUSE_US // 2


def test_a_snapshot_that_is_never_whole_is_of_no_use():
    fed = FedShard()
    pauses = []
    for _ in range(10):
        fed.open()
        assert fed.tell(fed.snapshot(chunks=2)[0]) is None
        pauses.append(fed.end().pause_us)
    assert min(pauses[5:]) >= LONGEST_PAUSE_US / 2


def test_whoever_falls_back_from_an_edge_is_at_the_unit_soon_however_long_pauses_were():
    fed = FedShard(bootstrap="peer")
    assert [fed.open().source.id] == ["edge-a0"]
    fed.end()
    pauses, sources = [], []
    for _ in range(2):
        sources.append(fed.open().source.id)
        pauses.append(fed.end().pause_us)
    assert sources == ["edge-a1", "unit-0"]
    assert pauses[0] <= FIRST_PAUSE_US
    for _ in range(8):
        fed.open()
        fed.end()
    fed.now_us += RETURN_AFTER_US
    assert fed.open().source.kind is SourceKind.EDGE
    assert fed.end().pause_us <= FIRST_PAUSE_US


@pytest.mark.parametrize("seed", range(20))
def test_edges_do_not_come_back_together(seed):
    one, other = FedShard(seed=seed), FedShard(seed=seed + 1)
    assert pauses_of(one) != pauses_of(other)
    assert pauses_of(FedShard(seed=seed)) == pauses_of(FedShard(seed=seed))


def pauses_of(fed: FedShard) -> list[int]:
    pauses = []
    for _ in range(3):
        fed.open()
        pauses.append(fed.end().pause_us)
    return pauses


def test_a_shard_that_is_only_followed_elsewhere_waits_for_nothing_and_stays_exact():
    fed = FedShard().exact()
    ended = fed.end(MOVED)
    assert (ended.pause_us, ended.is_news) == (0, False)
    assert fed.state is FollowerState.EXACT
    fed.open()
    assert fed.end().pause_us > 0
    assert fed.state is FollowerState.CATCHING_UP


# --- from edge to unit and back --------------------------------------------------------------------------


def test_an_edge_that_fails_is_left_for_the_unit_and_followed_again_once_it_proves_to_serve():
    fed = FedShard(edges=2, bootstrap="peer", upstream="edge").exact()
    assert fed.choice.source.id == "edge-a0"
    assert fed.end().is_news
    assert fed.open().source.kind is SourceKind.UNIT
    assert fed.tell(fed.watermark()) is None
    assert fed.feed.probe.ask(fed.now_us) is None, "it has just failed"
    fed.now_us += RETURN_AFTER_US
    asked = fed.feed.probe.ask(fed.now_us)
    assert asked is not None
    assert asked.source.id == "edge-a0"
    assert asked.request.applied_sequence == 1
    moves = fed.feed.probe.answered(fed.watermark(), fed.now_us)
    assert isinstance(moves, Resubscribe)
    assert moves.reason is ResubscribeReason.MOVED
    assert fed.end(moves).pause_us == 0
    assert fed.open().source.id == "edge-a0"
    assert fed.choice.fallbacks == {ResubscribeReason.LOST: 1}
    assert fed.follower.counters.resubscriptions == {ResubscribeReason.LOST: 1, ResubscribeReason.MOVED: 1}


def test_a_unit_that_is_lost_while_an_edge_is_asked_is_dialled_again_and_the_answer_counts_for_nothing():
    fed = FedShard(edges=2, upstream="edge").exact()
    assert fed.feed.probe.ask(fed.now_us) is not None
    fed.end()
    assert fed.open().source.kind is SourceKind.UNIT
    with pytest.raises(AssertionError):
        fed.feed.probe.answered(fed.watermark(), fed.now_us)
    fed.now_us += RETURN_AFTER_US
    assert fed.feed.probe.ask(fed.now_us) is not None


def test_the_stream_of_an_edge_that_has_left_the_plan_is_left_at_its_next_message():
    fed = FedShard(edges=2, bootstrap="peer", upstream="edge").exact()
    fed.choice.apply_plan(
        replace(fed.plan, edges=tuple(each for each in fed.plan.edges if each.id != "edge-a0"))
    )
    moves = fed.tell(fed.watermark())
    assert isinstance(moves, Resubscribe)
    assert moves.reason is ResubscribeReason.MOVED
    fed.end(moves)
    assert fed.open().source.kind is SourceKind.UNIT
    assert fed.choice.fallbacks == {}


def test_an_edge_that_was_to_give_the_first_snapshot_only_is_left_for_the_unit():
    fed = FedShard(edges=2, bootstrap="peer")
    assert fed.open().source.kind is SourceKind.EDGE
    moves = fed.tell(*fed.snapshot())
    assert isinstance(moves, Resubscribe)
    assert moves.reason is ResubscribeReason.MOVED
    assert fed.end(moves).pause_us == 0
    assert fed.open().source.kind is SourceKind.UNIT
    assert fed.state is FollowerState.EXACT


def test_whoever_begins_to_follow_an_edge_serves_nobody():
    fed = FedShard(edges=2, bootstrap="peer")
    fed.open()
    opened = fed.feed.relay.subscribe(fed.follower.resume_request(), fed.now_us)
    assert opened == Unavailable(UnavailableReason.FOLLOWS_EDGE)


# --- what is told ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was_exact", "told"), [([True, False, False], 1), ([True, True, True], 3), ([True, False, True], 2)]
)
def test_each_outage_is_told_once(was_exact, told):
    fed, news = FedShard(), 0
    for exact in was_exact:
        fed.open()
        if exact:
            fed.tell(*fed.snapshot())
        news += fed.end(fed.feed.silence()).is_news
    assert news == told


def test_an_outage_that_shows_otherwise_or_of_somebody_else_is_told_again():
    fed = FedShard(edges=2, bootstrap="peer")
    told = []
    for ended in (LOST, LOST, LOST, fed.feed.silence(), LOST, replace(LOST, detail="refused")):
        source = fed.open().source.id
        told.append((source, fed.end(ended).is_news))
    assert told == [
        ("edge-a0", True),
        ("unit-0", True),
        ("unit-0", False),
        ("unit-0", True),
        ("unit-0", True),
        ("unit-0", True),
    ]


# --- whatever happens ------------------------------------------------------------------------------------

happenings = st.lists(
    st.tuples(
        st.sampled_from(["watermark", "edit", "gap", "snapshot", "lost", "silence", "ask", "plan", "wait"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(happenings=happenings, bootstrap=st.sampled_from(["units", "peer"]), seed=st.integers(0, 1000))
def test_whatever_happens_every_stream_is_counted_once_and_the_next_one_is_near(happenings, bootstrap, seed):
    """Ends are counted by reason, pauses are 0 or the backoff's, and a loaded view tries no unproved edge."""
    fed, random = FedShard(bootstrap=bootstrap, upstream="edge", seed=seed), Random(seed)
    first = fed.plan
    ends: list[ResubscribeReason] = []
    proved = ""
    source = fed.open().source
    for what, number in happenings:
        ended: object = None
        match what:
            case "watermark":
                ended = fed.tell(fed.watermark())
            case "edit":
                ended = fed.tell(fed.edit())
            case "gap":
                fed.edit()
            case "snapshot":
                ended = fed.tell(*fed.snapshot())
            case "lost":
                ended = LOST
            case "silence":
                fed.now_us = max(fed.now_us, fed.feed.silent_at_us)
                ended = fed.feed.silence()
            case "ask":
                asked = fed.feed.probe.ask(fed.now_us)
                if asked is not None:
                    assert fed.follower.loaded
                    answer = random.choice([fed.watermark(), *fed.snapshot(), "it says nothing"])
                    ended = fed.feed.probe.answered(answer, fed.now_us)
                    proved = asked.source.id if isinstance(ended, Resubscribe) else proved
            case "plan":
                edges = tuple(each for each in first.edges if random.random() < 0.7 or each.id == "edge-a2")
                fed.choice.apply_plan(replace(first, edges=edges))
            case "wait":
                fed.now_us += number * S
        if not isinstance(ended, Resubscribe):
            continue
        moved = ended.reason is ResubscribeReason.MOVED
        was_edge, was_exact = source.kind is SourceKind.EDGE, fed.follower.was_exact
        pause_us = fed.end(ended).pause_us
        ends.append(ended.reason)
        assert fed.follower.counters.resubscriptions.total() == len(ends)
        assert fed.follower.counters.resubscriptions[ended.reason] == ends.count(ended.reason)
        assert (pause_us == 0) == moved
        assert moved or FIRST_PAUSE_US / 2 <= pause_us <= LONGEST_PAUSE_US
        assert not (was_edge or was_exact) or pause_us <= FIRST_PAUSE_US
        fed.now_us += pause_us
        loaded, opening = fed.follower.loaded, fed.open()
        source = opening.source
        assert opening.request.loaded is loaded
        assert not loaded or source == fed.choice.unit or (moved and source.id == proved)
