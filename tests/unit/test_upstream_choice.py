"""Whom a loaded view follows: the unit, or an edge that has proved that it serves, and nobody else."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.roles.index_follower import STALE_AFTER_US
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Handshake,
    SnapshotChunk,
    SubscribeRequest,
    Unavailable,
    UnavailableReason,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.upstream_choice import RETURN_AFTER_US, Source, SourceKind, UpstreamChoice
from tests.models.relay_region import region_plan
from tests.models.replication_fleet import S

REQUEST = SubscribeRequest(
    Handshake("edge-a2", 1, PROTOCOL_VERSION, 1, {}), unit_epoch=5, applied_sequence=10
)
GOES_ON = Watermark(5, 10, 0)
ELSEWHERE = SnapshotChunk(6, 100, 0, 0, 9, b"")
SERVES_NOT = Unavailable(UnavailableReason.NOT_EXACT)


def loaded_choice(edges: int = 3) -> UpstreamChoice:
    """Of the last edge of the region. It follows the unit."""
    choice = UpstreamChoice(region_plan(edges), f"edge-a{edges - 1}", 0, upstream="edge")
    assert choice.next(loaded=False, now_us=0).kind is SourceKind.UNIT
    return choice


def ask(choice: UpstreamChoice, now_us: int) -> Source:
    asked = choice.to_probe(now_us)
    assert asked is not None
    return asked


def test_the_edge_that_has_proved_to_serve_is_followed_and_not_a_silent_one_before_it():
    choice = loaded_choice()
    silent = ask(choice, S)
    assert not choice.probed(silent, REQUEST, None, S + STALE_AFTER_US, starved=False)
    now_us = 2 * S + STALE_AFTER_US
    serves = ask(choice, now_us)
    assert (silent.id, serves.id) == ("edge-a0", "edge-a1")
    now_us += RETURN_AFTER_US  # the silent one might be asked again
    assert choice.probed(serves, REQUEST, GOES_ON, now_us, starved=False)
    choice.ended(ResubscribeReason.MOVED, loaded=True, now_us=now_us)
    assert choice.next(loaded=True, now_us=now_us) == serves
    choice.ended(ResubscribeReason.LOST, loaded=True, now_us=now_us)
    assert choice.next(loaded=True, now_us=now_us + 60 * S) == choice.unit, "it proved that once"


def test_a_unit_that_is_lost_while_an_edge_is_asked_is_dialled_again():
    choice = loaded_choice()
    ask(choice, S)
    choice.ended(ResubscribeReason.LOST, loaded=True, now_us=2 * S)
    assert choice.next(loaded=True, now_us=2 * S) == choice.unit


def test_an_edge_whose_answer_is_cut_off_each_time_does_not_keep_others_from_being_asked():
    choice, asked = loaded_choice(), set()
    for second in range(1, 10):
        source = choice.to_probe(second * S)
        if source is not None:
            asked.add(source.id)
        choice.ended(ResubscribeReason.LOST, loaded=True, now_us=second * S)
        choice.next(loaded=True, now_us=second * S)
    assert asked == {"edge-a0", "edge-a1"}


@pytest.mark.parametrize(("starved", "leaves"), [(False, False), (True, True)])
def test_a_snapshot_is_better_than_the_present_stream_only_where_that_has_nothing(starved, leaves):
    choice = loaded_choice()
    source = ask(choice, S)
    assert choice.probed(source, REQUEST, ELSEWHERE, S, starved=starved) is leaves
    assert choice.probed(source, REQUEST, Watermark(6, 10, 0), S, starved=starved) is False
    assert choice.probed(source, REQUEST, SERVES_NOT, S, starved=starved) is False


@pytest.mark.parametrize("seed", range(20))
def test_an_edge_before_which_the_unit_is_a_black_hole_goes_to_its_neighbour_soon(seed):
    """Each stream of the unit is silence; the neighbour's log does not reach back to the view."""
    random, choice = Random(seed), loaded_choice(2)
    heard_us, now_us = 0, 0
    while choice.source == choice.unit:
        stream_ends_us = now_us + STALE_AFTER_US
        while (now_us := now_us + random.randint(S // 4, S // 2)) < stream_ends_us:
            source = choice.to_probe(now_us)
            starved = now_us - heard_us > STALE_AFTER_US
            if source is not None and choice.probed(source, REQUEST, ELSEWHERE, now_us, starved=starved):
                choice.ended(ResubscribeReason.MOVED, loaded=True, now_us=now_us)
                break
        else:
            choice.ended(ResubscribeReason.SILENCE, loaded=True, now_us=now_us)
            now_us += random.randint(S // 20, 2 * S)
        choice.next(loaded=True, now_us=now_us)
        assert now_us < STALE_AFTER_US + RETURN_AFTER_US + 3 * S
    assert choice.source.id == "edge-a0"


events = st.lists(
    st.tuples(
        st.sampled_from(["ask", "lost", "silence", "wait"]),
        st.sampled_from([None, GOES_ON, ELSEWHERE, SERVES_NOT]),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(events=events)
def test_a_loaded_view_never_turns_to_an_edge_that_has_not_proved_to_serve(
    events: list[tuple[str, UnitToEdge | None, bool]],
):
    choice, now_us = loaded_choice(4), 0
    for event, answer, starved in events:
        now_us += S
        proved = None
        match event:
            case "ask":
                source = choice.to_probe(now_us)
                if source is None or not choice.probed(source, REQUEST, answer, now_us, starved=starved):
                    continue
                proved = source
                choice.ended(ResubscribeReason.MOVED, loaded=True, now_us=now_us)
            case "wait":
                now_us += RETURN_AFTER_US
                continue
            case reason:
                choice.ended(ResubscribeReason(reason), loaded=True, now_us=now_us)
        assert choice.next(loaded=True, now_us=now_us) == (proved or choice.unit)
