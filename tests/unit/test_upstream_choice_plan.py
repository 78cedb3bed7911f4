"""Whom an edge follows when edges of its region join and leave."""

from dataclasses import replace

from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake, SubscribeRequest, Watermark
from kvcompass.roles.upstream_choice import SourceKind, UpstreamChoice
from tests.models.relay_region import region_plan


def test_an_edge_that_leaves_is_left_and_the_unit_or_the_next_is_followed():
    plan = region_plan(3)
    choice = UpstreamChoice(plan, "edge-a2", 0, upstream="edge", bootstrap="peer")
    assert choice.next(loaded=False, now_us=0).id == "edge-a0"
    assert choice.may_stay(loaded=True)
    choice.apply_plan(replace(plan, edges=plan.edges[1:]))
    assert not choice.may_stay(loaded=True)
    assert choice.next(loaded=True, now_us=0).kind is SourceKind.UNIT
    asked = choice.to_probe(0)
    assert asked is not None and asked.id == "edge-a1"
    request = SubscribeRequest(Handshake("edge-a2", 1, PROTOCOL_VERSION, 1, {}), 5, 10)
    assert choice.probed(asked, request, Watermark(5, 10, 0), 0, starved=False)
    assert choice.next(loaded=True, now_us=0) == asked
    choice.apply_plan(replace(plan, edges=plan.edges[2:]))
    assert not choice.may_stay(loaded=True)
    assert choice.next(loaded=True, now_us=0).kind is SourceKind.UNIT
    assert choice.edges == []


def test_an_edge_that_joins_behind_changes_nothing_and_one_before_may_be_asked():
    plan = region_plan(2)
    choice = UpstreamChoice(
        replace(plan, edges=plan.edges[1:]), "edge-a1", 0, upstream="edge", bootstrap="peer"
    )
    assert choice.next(loaded=True, now_us=0).kind is SourceKind.UNIT
    assert choice.to_probe(0) is None
    assert [source.id for source in choice.edges_of(plan)] == ["edge-a0"]
    choice.apply_plan(plan)
    assert choice.may_stay(loaded=True)
    probed = choice.to_probe(0)
    assert probed is not None
    assert probed.id == "edge-a0"


def test_an_edge_that_has_left_itself_follows_the_unit():
    plan = region_plan(2)
    choice = UpstreamChoice(plan, "edge-a1", 0, upstream="edge")
    choice.apply_plan(replace(plan, edges=plan.edges[:1]))
    assert choice.next(loaded=True, now_us=0).kind is SourceKind.UNIT
