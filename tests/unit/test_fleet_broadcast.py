"""Who is owed the queue vector, and when a piggyback pays the debt."""

from kvcompass.fleet.broadcast import BroadcastSchedule
from tests.models.routing_fleets import MS, make_plan

PERIOD_US = 100 * MS


def test_every_edge_of_every_other_region_once_a_period() -> None:
    schedule = BroadcastSchedule(make_plan(edges_a_region=2), "us")
    everyone = {"edge-eu-0", "edge-eu-1", "edge-asia-0", "edge-asia-1"}
    assert set(schedule.due(0)) == everyone
    assert schedule.due(PERIOD_US - 1) == ()
    assert schedule.next_us == PERIOD_US
    assert set(schedule.due(PERIOD_US)) == everyone


def test_a_piggyback_suppresses_the_broadcast_for_a_period() -> None:
    schedule = BroadcastSchedule(make_plan(), "us")
    schedule.due(0)
    schedule.piggybacked("eu", 60 * MS)
    assert schedule.due(PERIOD_US) == ("edge-asia-0",)
    assert schedule.next_us == 160 * MS
    assert schedule.due(160 * MS) == ("edge-eu-0",)


def test_a_busy_pair_is_never_broadcast_to() -> None:
    schedule = BroadcastSchedule(make_plan(), "us")
    schedule.due(0)
    told = []
    for now_us in range(0, 10 * PERIOD_US, 10 * MS):
        schedule.piggybacked("eu", now_us)
        told += schedule.due(now_us)
    assert told.count("edge-eu-0") == 0
    assert told.count("edge-asia-0") == 9


def test_a_piggyback_reaches_one_edge_so_siblings_are_still_told() -> None:
    schedule = BroadcastSchedule(make_plan(edges_a_region=2), "us")
    schedule.due(0)
    schedule.piggybacked("eu", 50 * MS)
    assert {"edge-eu-0", "edge-eu-1"} <= set(schedule.due(PERIOD_US))


def test_its_own_region_and_strangers_change_nothing() -> None:
    schedule = BroadcastSchedule(make_plan(), "us")
    schedule.due(0)
    schedule.piggybacked("us", 0)
    schedule.piggybacked("mars", 50 * MS)
    assert set(schedule.due(PERIOD_US)) == {"edge-eu-0", "edge-asia-0"}
