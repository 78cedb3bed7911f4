"""An edge that learns from an edge has what the unit's table has, whatever happened on the way."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.plan.model import Plan
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.upstream_choice import SourceKind
from tests.models.relay_region import STEP_US, Node, Region

SETTLE_S = 20
"""After the last fault: silence noticed, units subscribed, an edge that failed asked again, a watermark."""

OPERATIONS = {
    "edit": 8,
    "deliver": 10,
    "step": 10,
    "drop": 3,
    "repeat": 2,
    "swap": 2,
    "stall": 1,
    "wait": 3,
    "rebuild": 1,
    "restart unit": 1,
    "kill edge": 1,
    "start edge": 2,
    "cut": 2,
    "heal": 1,
}
"""How often each, about."""
operations = st.lists(
    st.tuples(
        st.sampled_from([name for name, weight in OPERATIONS.items() for _ in range(weight)]),
        st.integers(0, 2),
        st.integers(0, 9),
    ),
    max_size=80,
)


def perform(region: Region, operation: str, number: int, value: int) -> None:
    node = region.edges[number]
    stream = node.stream
    match operation:
        case "edit":
            region.unit.edit(value, 1 + number % 2 if value % 3 else 0)
        case "deliver" if node.alive:
            node.deliver()
        case "step":
            region.step()
        case "drop" if stream is not None and stream.queue:
            stream.queue.popleft()
        case "repeat" if stream is not None and stream.queue:
            stream.queue.append(stream.queue[-1])
        case "swap" if stream is not None and len(stream.queue) > 1:
            stream.queue[0], stream.queue[1] = stream.queue[1], stream.queue[0]
        case "stall":
            node.reads = not node.reads
        case "wait":
            region.run(value)
        case "rebuild":
            region.unit.rebuild()
        case "restart unit":
            region.restart_unit()
        case "kill edge" if node.alive:
            region.kill(node)
        case "start edge" if not node.alive:
            node.start()
        case "cut":
            other = ["unit-0", *(each.name for each in region.edges)][value % 4]
            region.cut.add(frozenset((node.name, other)))
        case "heal":
            region.cut.clear()


def mend(region: Region) -> None:
    region.cut.clear()
    for node in region.edges:
        node.reads = True
        if not node.alive:
            node.start()


def sources(region: Region) -> list[str]:
    return [node.choice.source.id for node in region.edges if node.alive]


def followed_at(node: Node) -> int:
    """Streams that an edge serves."""
    return node.relay.subscribers


@pytest.mark.parametrize("upstream", ["edge", "units"])
@settings(max_examples=150, deadline=None)
@given(operations=operations, groups=st.sampled_from([4, 400]), relay_groups=st.sampled_from([4, 400]))
def test_after_any_schedule_every_view_is_the_units_table(upstream, operations, groups, relay_groups):
    region = Region(upstream=upstream, log_groups=groups, relay_groups=relay_groups)
    region.run(SETTLE_S / 2)
    for operation in operations:
        perform(region, *operation)
    mend(region)
    region.run(SETTLE_S)
    region.assert_converged()
    first = "edge-a0" if upstream == "edge" else "unit-0"
    assert sources(region) == ["unit-0", first, first]


def test_one_stream_of_the_unit_feeds_a_region():
    region = Region()
    region.unit.edit(1, 1)
    region.run(SETTLE_S)
    assert len(region.unit.desk.lags()) == 1
    assert [followed_at(node) for node in region.edges] == [2, 0, 0]
    region.unit.edit(2, 2)
    region.run(1)
    region.assert_converged()
    assert [node.follower.counters.snapshots for node in region.edges] == [1, 1, 1]


def test_where_the_first_edge_dies_the_next_takes_over_and_gives_way_when_it_is_back():
    region = Region()
    region.run(SETTLE_S)
    leader, *others = region.edges
    region.kill(leader)
    snapshots = [node.follower.counters.snapshots for node in others]
    fallbacks = [node.choice.fallbacks.copy() for node in others]
    region.unit.edit(1, 1)
    region.run(1)
    assert [node.view.fields for node in others] == [region.unit.tables.fields] * 2
    region.run(SETTLE_S)
    assert sources(region) == ["unit-0", "edge-a1"]
    leader.start()
    for step in range(SETTLE_S * 20):
        region.run(0.05)
        if step == 20:
            region.unit.edit(2, 1)
        assert others[0].state is FollowerState.EXACT, "it moves without a doubt"
    assert sources(region) == ["unit-0", "edge-a0", "edge-a0"]
    region.assert_converged()
    assert [node.follower.counters.snapshots for node in others] == snapshots, "there was no gap"
    assert leader.choice.fallbacks == {}, "it had its snapshot of a neighbour"
    assert others[0].choice.fallbacks - fallbacks[0] == {ResubscribeReason.LOST: 1}


def test_where_the_first_edge_falls_silent_the_others_are_with_the_unit_within_their_bound():
    region = Region()
    region.run(SETTLE_S)
    _, *others = region.edges
    for one, other in combinations(region.edges, 2):
        region.cut.add(frozenset((one.name, other.name)))
    began = region.now_us
    while any(node.choice.source.kind is SourceKind.EDGE for node in others):
        region.run(0.05)
    for other in others:
        assert region.now_us - began <= other.follower.stale_after_us + 2 * STEP_US
    region.run(1.5)
    region.assert_converged()


def test_an_edge_moves_to_one_that_comes_before_the_one_it_follows():
    region = Region()
    first, second, third = (node.name for node in region.edges)
    region.cut |= {frozenset((first, second)), frozenset((first, third))}
    region.run(SETTLE_S)
    assert sources(region) == ["unit-0", "unit-0", second]
    region.cut.remove(frozenset((first, third)))
    region.run(SETTLE_S)
    assert sources(region) == ["unit-0", "unit-0", first]
    region.assert_converged()


def test_an_edge_that_a_plan_puts_before_others_is_followed_by_them():
    region = Region(edges=2)
    region.run(SETTLE_S)
    first, second = region.edges
    first.choice.apply_plan(with_edges(region, second.name, first.name))
    second.choice.apply_plan(with_edges(region, second.name, first.name))
    region.unit.edit(1, 1)
    region.run(SETTLE_S)
    assert sources(region) == [second.name, "unit-0"]
    region.assert_converged()


def with_edges(region: Region, *names: str) -> Plan:
    """The plan with the region's edges in this order."""
    found = {edge.id: edge for edge in region.plan.edges}
    others = [edge for edge in region.plan.edges if edge.id not in names]
    return replace(region.plan, edges=(*(found[name] for name in names), *others))


def test_an_edge_whose_unit_is_silent_makes_no_news():
    """Whoever follows it is as stale as it is: an echo would keep all of them exact for ever."""
    region = Region()
    region.run(SETTLE_S)
    for node in region.edges:
        region.cut.add(frozenset((node.name, "unit-0")))
    region.run(4)
    assert [node.state for node in region.edges] == [FollowerState.STALE] * 3
    region.run(60)
    assert [node.state for node in region.edges] == [FollowerState.STALE] * 3


def test_an_edge_that_is_stale_or_empty_serves_nobody():
    region = Region()
    region.run(SETTLE_S)
    leader, other, _ = region.edges
    fallbacks = other.choice.fallbacks.copy()
    assert followed_at(leader) == 2
    region.cut.add(frozenset((leader.name, "unit-0")))
    region.run(5)
    assert leader.state is FollowerState.STALE
    assert followed_at(leader) == 0
    assert other.choice.source == other.choice.unit
    assert other.state is FollowerState.EXACT
    assert (other.choice.fallbacks - fallbacks).total() == 1


def test_a_slow_follower_costs_a_snapshot_and_holds_up_nobody():
    region = Region(relay_groups=8)
    region.run(SETTLE_S)
    leader, slow, other = region.edges
    slow.reads = False
    for key in range(20):
        region.unit.edit(key, 1)
        region.run(0.1)
    assert leader.view.fields == other.view.fields == region.unit.tables.fields
    assert leader.relay.counters.overflows == 0
    slow.reads = True
    region.run(1)
    assert leader.relay.counters.overflows == 1
    region.assert_converged()


def test_an_edge_that_follows_an_edge_serves_nobody():
    region = Region()
    region.cut.add(frozenset(("edge-a0", "edge-a2")))
    for _ in range(SETTLE_S):
        region.run(1)
        assert followed_at(region.edges[1]) == 0 or sources(region)[1] == "unit-0"
    assert sources(region) == ["unit-0", "edge-a0", "unit-0"]
    region.assert_converged()


def test_a_unit_that_restarts_is_followed_on_by_way_of_the_edge():
    region = Region()
    for key in range(20):
        region.unit.edit(key, 1)
    region.run(SETTLE_S)
    fallbacks = [node.choice.fallbacks.copy() for node in region.edges]
    region.restart_unit()
    region.unit.edit(3, 2)
    region.run(1.5)
    region.assert_converged()
    assert [node.choice.fallbacks for node in region.edges] == fallbacks
    assert sources(region) == ["unit-0", "edge-a0", "edge-a0"]


def test_an_edge_that_restarts_learns_from_a_neighbour_and_then_follows_the_unit():
    region = Region(bootstrap="peer", upstream="units")
    region.unit.edit(1, 1)
    region.run(SETTLE_S)
    (before, node, _), sent = region.edges, region.unit.desk.lags()
    assert sources(region) == ["unit-0"] * 3
    assert set(sent) == {"edge-a0", "edge-a1", "edge-a2"}
    snapshots = region.unit.desk._counters.snapshots
    region.kill(node)
    node.start()
    region.unit.edit(2, 1)
    region.run(2)
    region.assert_converged()
    assert sources(region) == ["unit-0"] * 3
    assert region.unit.desk._counters.snapshots == snapshots, "the unit sent what came after"
    assert before.relay.counters.snapshots >= 1


def test_a_relay_that_tells_what_is_wrong_is_left_and_not_soon_asked_again():
    region = Region()
    region.unit.edit(1, 1)
    region.run(SETTLE_S)
    leader, node, _ = region.edges
    assert node.stream is not None and node.stream.source.id == leader.name
    node.spoilt, node.view.fields[3, 0, 0] = True, 2
    region.unit.edit(4, 1)
    region.run(3)
    assert node.follower.counters.digest_mismatches == 1
    assert node.choice.fallbacks[ResubscribeReason.DIGEST] == 1
    assert node.choice.source == node.choice.unit
    region.run(30)
    assert node.choice.source == node.choice.unit
    region.assert_converged()
    region.run(60)
    assert node.choice.source.id == leader.name


def test_what_is_acknowledged_to_the_unit_is_applied_at_every_edge_of_the_region():
    region = Region()
    region.run(SETTLE_S)
    leader, slow, _ = region.edges
    slow.reads = False
    region.unit.edit(1, 1)
    region.run(2)
    assert leader.follower.applied_sequence == region.unit.desk.sequence
    assert region.unit.desk.lags() == {"edge-a0": 2}
    slow.reads = True
    region.run(2.5)
    assert region.unit.desk.lags() == {"edge-a0": 0}


def test_edges_whose_plans_disagree_on_who_is_first_do_not_follow_in_a_circle():
    region = Region(edges=2)
    first, second = region.edges
    region.plan = with_edges(region, second.name, first.name)
    region.kill(first)
    first.start()  # by this plan the other one is the first
    for key in range(40):
        region.unit.edit(key, 1)
        region.run(1)
        assert not (
            first.choice.source.id == second.name
            and second.choice.source.id == first.name
            and followed_at(first)
            and followed_at(second)
        )
    region.unit.alive = False
    region.kill_unit()
    region.run(4)
    assert FollowerState.EXACT not in (first.state, second.state)
