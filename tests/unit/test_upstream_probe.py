"""Other edges are asked one by one, beside a stream of a loaded view; what they say is told once."""

import pytest

from kvcompass.roles.messages import Acknowledgement, Refusal, Unavailable, UnavailableReason, UnitToEdge
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.upstream_choice import RETURN_AFTER_US
from kvcompass.roles.upstream_probe import LOOK_US, SILENT, NotServing
from tests.models.fed_shard import STALE_US, FedShard
from tests.models.replication_fleet import S

SERVES_NOT = Unavailable(UnavailableReason.NOT_EXACT)


@pytest.fixture
def fed() -> FedShard:
    """The last edge of three. It follows the unit."""
    return FedShard(upstream="edge").exact()


def ask(fed: FedShard) -> str:
    opening = fed.feed.probe.ask(fed.now_us)
    assert opening is not None
    return opening.source.id


def hear(fed: FedShard, answer: UnitToEdge | str) -> NotServing:
    outcome = fed.feed.probe.answered(answer, fed.now_us)
    assert isinstance(outcome, NotServing)
    return outcome


def test_looks_are_half_a_second_apart_at_most_and_a_quarter_at_least(fed: FedShard):
    pauses = [fed.feed.probe.pause_us() for _ in range(200)]
    assert LOOK_US / 2 <= min(pauses) < 0.55 * LOOK_US
    assert 0.95 * LOOK_US < max(pauses) <= LOOK_US


def test_nobody_is_ever_asked_where_units_are_to_be_followed():
    assert not FedShard(upstream="units").feed.probe.is_of_use
    assert FedShard(upstream="edge", edges=1).feed.probe.is_of_use, "another plan may have an edge before it"


def test_nobody_is_asked_before_the_view_is_loaded():
    fed = FedShard(upstream="edge")
    fed.open()
    assert fed.feed.probe.ask(0) is None
    fed.tell(*fed.snapshot())
    assert ask(fed) == "edge-a0"


def test_one_edge_is_asked_at_a_time_in_the_plans_order(fed: FedShard):
    assert ask(fed) == "edge-a0"
    with pytest.raises(AssertionError):
        fed.feed.probe.ask(fed.now_us)
    hear(fed, SERVES_NOT)
    assert ask(fed) == "edge-a1"
    hear(fed, SERVES_NOT)
    assert fed.feed.probe.ask(fed.now_us) is None
    fed.now_us += RETURN_AFTER_US
    assert ask(fed) == "edge-a0"


def test_a_question_leaves_the_present_stream_as_it_is(fed: FedShard):
    fed.edit()
    first, last = fed.snapshot(chunks=2)
    assert fed.tell(first) is None
    ask(fed)
    assert fed.tell(last) == Acknowledgement(last.sequence)


def test_an_answer_is_waited_for_as_long_as_a_stream_may_be_silent(fed: FedShard):
    assert fed.feed.probe.answer_within_us == STALE_US


def test_who_goes_on_from_where_the_view_was_is_followed_though_the_view_has_gone_on(fed: FedShard):
    ask(fed)
    patches = fed.edit()
    fed.tell(patches)
    moves = fed.feed.probe.answered(patches, fed.now_us)
    assert isinstance(moves, Resubscribe)
    assert moves.reason is ResubscribeReason.MOVED


def test_a_snapshot_is_good_enough_for_a_view_that_hears_nothing(fed: FedShard):
    ask(fed)
    assert hear(fed, *fed.snapshot()).why == "it is elsewhere: SnapshotChunk"
    fed.now_us += RETURN_AFTER_US
    assert ask(fed) == "edge-a0"
    assert isinstance(fed.feed.probe.answered(*fed.snapshot(), fed.now_us), Resubscribe)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (SILENT, "it says nothing"),
        (SERVES_NOT, "not_exact"),
        (Refusal("block_size", "16, not 64"), "block_size: 16, not 64"),
    ],
)
def test_why_an_edge_does_not_serve_is_told_once_until_it_is_another_reason(fed: FedShard, answer, why):
    told = []
    for each in (answer, answer, "the connection broke", answer):
        fed.now_us += RETURN_AFTER_US
        assert ask(fed) == "edge-a0"
        outcome = hear(fed, each)
        assert outcome.edge_id == "edge-a0"
        told.append((outcome.why, outcome.is_news))
    assert told == [(why, True), (why, False), ("the connection broke", True), (why, True)]


def test_it_is_told_again_of_an_edge_that_served_meanwhile(fed: FedShard):
    ask(fed)
    assert hear(fed, SERVES_NOT).is_news
    fed.now_us += RETURN_AFTER_US
    ask(fed)
    moves = fed.feed.probe.answered(fed.watermark(), fed.now_us)
    assert isinstance(moves, Resubscribe)
    fed.end(moves)
    assert fed.open().source.id == "edge-a0"
    fed.end()
    fed.open()
    fed.now_us += RETURN_AFTER_US + S
    assert ask(fed) == "edge-a0"
    assert hear(fed, SERVES_NOT).is_news


def test_a_question_ends_with_the_stream_and_other_edges_have_their_turn(fed: FedShard):
    assert ask(fed) == "edge-a0"
    fed.end()
    fed.open()
    assert ask(fed) == "edge-a1"
