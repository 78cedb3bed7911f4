"""A unit that begins with its predecessor's snapshot goes on as if it had never stopped."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcompass.index import IndexView, index_shape
from kvcompass.kernels.jit import JIT
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import PatchGroups, ReportRequest, SnapshotChunk, UnitToEdge, Watermark
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_snapshot import snapshot_of
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_table import DictTables
from tests.models.unit_snapshots import (
    agent_of,
    finish,
    held,
    join,
    new_unit,
    random_holdings,
    real_tables,
    restored,
    settled_unit,
    subscribe,
    written,
)

PLAN = replication_plan()
LEASE_US = 3 * S
NO_CLOCK = [HealthCheck.too_slow]
"""A busy machine is no fault."""
HELD = {"a-0": {5: 1, 6: 2, 2**62: 1}, "a-1": {5: 2, 7: 1}, "b-0": {5: 1}}

tiers_by_key = st.dictionaries(st.integers(0, 2**63 - 1), st.integers(1, 2), max_size=30)
holdings = st.fixed_dictionaries(dict.fromkeys(WORKERS, tiers_by_key))
tables = st.sampled_from([real_tables, lambda _plan: DictTables()])


def view_of(unit: MaintenanceUnit, subscription: Subscription) -> IndexView:
    """What an edge has that takes all there is."""
    view = IndexView(index_shape(PLAN))
    payload = b""
    for _ in range(500):
        unit.tick(0)
        for message in unit.take(subscription, 0):
            match message:
                case SnapshotChunk():
                    payload = payload + message.payload if message.chunk else message.payload
                    if message.chunk + 1 == message.chunks:
                        view.load_snapshot(0, payload, message.sequence, message.digest)
                case PatchGroups():
                    view.apply(0, message.first_sequence, message.count, message.payload)
                case Watermark():
                    assert view.digest(0) == message.digest
                    return view
    raise AssertionError("no watermark came")


@given(holdings, holdings, tables)
@settings(max_examples=40 if JIT else 4, deadline=None, suppress_health_check=NO_CLOCK)
def test_a_restored_unit_has_what_was_written_and_every_view_of_it_answers_so(before, after, make):
    unit = settled_unit(PLAN, before, make(PLAN))
    for worker in WORKERS:
        join(unit, TwinAgent(worker, layout_fields(PLAN), epoch=2, holdings=dict(after[worker])))
    again = restored(written(unit), PLAN, tables=make)
    assert held(again) == held(unit) == after
    assert again.held() == unit.held()
    assert again.entries == unit.entries


@given(holdings)
@settings(max_examples=15 if JIT else 2, deadline=None, suppress_health_check=NO_CLOCK)
def test_a_view_of_a_restored_unit_answers_for_every_key_that_was_held(before):
    unit = restored(written(settled_unit(PLAN, before)), PLAN)
    view = view_of(unit, subscribe(unit, 0, 0))
    for worker in PLAN.workers:
        told = before[worker.id]
        found = view.lookup(np.array(list(told), np.uint64))[:, worker.table] >> 2 * worker.slot & 3
        assert found.tolist() == list(told.values())


def test_many_keys_come_back_and_the_table_takes_edits_on() -> None:
    many = random_holdings(PLAN, 4_000 if JIT else 200, seed=3)
    unit = restored(written(settled_unit(PLAN, many)), PLAN)
    assert held(unit) == many
    agent = agent_of(PLAN, "a-0", many["a-0"])
    session, welcome = join(unit, agent)
    assert not welcome.full_report_wanted
    first, *_, last = many["a-0"]
    unit.on_agent_message(session, agent.edit({first: 0, last: 3 - many["a-0"][last], 42: 1}), 0)
    finish(unit, session)
    assert held(unit)["a-0"] == agent.holdings
    assert unit.held()["a-0"] == (agent.renewal().holdings, agent.renewal().holdings_digest)


def test_a_snapshot_is_of_the_moment_it_began_and_edits_wait_until_it_is_copied() -> None:
    unit = settled_unit(PLAN, HELD)
    agent = TwinAgent("a-0", layout_fields(PLAN), epoch=2, holdings=dict(HELD["a-0"]))
    session, _ = join(unit, agent)
    capture = unit.capture()
    assert capture is not None
    assert unit.capture() is None, "one at a time"
    unit.on_agent_message(session, agent.edit({5: 0, 9: 1}), 0)
    finish(unit, session)
    assert capture.is_whole
    assert held(unit) == {**HELD, "a-0": agent.holdings}
    assert held(restored(b"".join(capture.parts()), PLAN)) == HELD
    assert unit.capture() is not None


def test_ticks_alone_finish_a_snapshot_and_the_unit_keeps_no_copy() -> None:
    unit = settled_unit(PLAN, HELD)
    capture = unit.capture()
    assert capture is not None
    while not capture.is_whole:
        assert unit.tick(0)
    while unit.tick(0):
        pass
    assert unit._copies.capture is None


def test_a_worker_that_is_being_cleared_is_not_written() -> None:
    unit = settled_unit(PLAN, HELD)
    session, _ = join(unit, TwinAgent("b-0", layout_fields(PLAN), epoch=2, holdings=dict(HELD["b-0"])))
    renewal = TwinAgent("b-0", layout_fields(PLAN), epoch=2, holdings=dict(HELD["b-0"])).renewal()
    unit.on_agent_message(session, renewal, 2 * S)
    unit._tables.clear_worker(0, 0)
    assert held(restored(written(unit), PLAN)) == {**HELD, "a-0": {}}


def test_a_unit_that_is_still_being_refilled_writes_nothing() -> None:
    unit = new_unit(PLAN)
    join(unit, agent_of(PLAN, "a-0", HELD["a-0"]))
    assert snapshot_of(unit) is None


# --- leases ---------------------------------------------------------------------------------------


def test_a_worker_that_does_not_come_back_is_cleared_after_as_long_as_an_empty_unit_waits() -> None:
    unit = restored(written(settled_unit(PLAN, HELD)), PLAN, now_us=50 * S)
    agents = {worker: agent_of(PLAN, worker, HELD[worker]) for worker in ("a-1", "b-0")}
    sessions = {worker: join(unit, agent, 50 * S + S)[0] for worker, agent in agents.items()}
    for now_us in range(51 * S, 56 * S, S):
        unit.tick(now_us)
        assert "a-0" in unit.live_workers()
        for worker, session in sessions.items():
            unit.on_agent_message(session, agents[worker].renewal(), now_us)
    assert held(unit) == HELD
    unit.tick(50 * S + unit.bounds.settle_leases * LEASE_US)
    assert unit.counters.leases_ended == 1
    assert held(unit) == {**HELD, "a-0": {}}
    assert unit.settled


def test_the_first_hello_grants_a_whole_lease_also_just_before_the_restored_one_ends() -> None:
    unit = restored(written(settled_unit(PLAN, HELD)), PLAN)
    ends_us = unit.bounds.settle_leases * LEASE_US
    join(unit, agent_of(PLAN, "a-0", HELD["a-0"]), ends_us - 1)
    while unit.tick(ends_us):
        pass
    assert held(unit) == {"a-0": HELD["a-0"], "a-1": {}, "b-0": {}}
    while unit.tick(ends_us - 1 + LEASE_US):
        pass
    assert held(unit)["a-0"] == {}


# --- agents correct the differences ---------------------------------------------------------------


def test_an_agent_whose_holdings_are_there_is_asked_for_no_report_another_is() -> None:
    unit = restored(written(settled_unit(PLAN, HELD)), PLAN)
    _, same = join(unit, agent_of(PLAN, "a-0", HELD["a-0"]))
    changed = agent_of(PLAN, "a-1", {5: 2, 8: 1})
    session, other = join(unit, changed)
    assert (same.full_report_wanted, other.full_report_wanted) == (False, True)
    finish(unit, session)
    assert held(unit) == {**HELD, "a-1": changed.holdings}
    assert unit.counters.full_reports == 1


def test_edits_follow_at_once_where_no_report_is_needed() -> None:
    unit = restored(written(settled_unit(PLAN, HELD)), PLAN)
    agent = agent_of(PLAN, "a-0", HELD["a-0"])
    session, _ = join(unit, agent)
    answers = unit.on_agent_message(session, agent.edit({11: 1}), 0)
    assert not any(isinstance(answer, ReportRequest) for answer in answers)
    assert held(unit)["a-0"] == {**HELD["a-0"], 11: 1}


# --- subscribers ----------------------------------------------------------------------------------


def served_at_once(unit: MaintenanceUnit, epoch: int, applied: int) -> bool:
    subscription = subscribe(unit, epoch, applied)
    for _ in range(100):
        unit.tick(0)
        if unit.take(subscription, 0):
            return True
    return False


def test_an_edge_is_served_at_once_unless_its_view_may_be_newer() -> None:
    first = settled_unit(PLAN, HELD)
    data, sequence = written(first), first.sequence
    assert sequence > 0
    unit = restored(data, PLAN)
    assert not unit.settled
    assert served_at_once(unit, 0, 0), "it has no view"
    assert served_at_once(unit, first.epoch, sequence), "it has what was written"
    assert served_at_once(unit, first.epoch, sequence - 1)
    assert not served_at_once(unit, first.epoch, sequence + 1), "it knows more than the snapshot"
    assert not served_at_once(unit, first.epoch + 1, 1), "of another unit's time: nobody can tell"
    for worker in WORKERS:
        join(unit, agent_of(PLAN, worker, HELD[worker]))
    assert unit.settled
    assert served_at_once(unit, first.epoch, sequence + 1)


def test_an_edge_whose_view_is_wrong_waits_as_one_whose_view_may_be_newer() -> None:
    """It asks for a snapshot, whatever its view is; and it has shown what came after the file."""
    unit = restored(written(settled_unit(PLAN, HELD)), PLAN)
    assert unit.take(subscribe(unit, 0, 0, loaded=True), 0) == []
    assert not subscribe(unit, 0, 0).waits


def test_an_edge_that_waited_is_not_sent_what_the_unit_began_with() -> None:
    """Not even with what came since right after it: in between its view would lack keys that it knew."""
    first = settled_unit(PLAN, HELD)
    data = written(first)
    unit = restored(data, PLAN)
    waiting = subscribe(unit, first.epoch, first.sequence + 1)
    assert served_at_once(unit, 0, 0), "the table as it began has been copied for somebody"
    for worker in WORKERS:
        join(unit, agent_of(PLAN, worker, HELD[worker] | {11: 1}))
    assert unit.settled
    messages: list[UnitToEdge] = []
    while not messages:
        unit.tick(0)
        messages = unit.take(waiting, 0)
    assert isinstance(messages[0], SnapshotChunk)
    assert messages[0].sequence == unit.sequence > 0


def test_a_restored_unit_says_with_every_watermark_whether_it_is_still_corrected() -> None:
    def watermark(unit: MaintenanceUnit) -> Watermark:
        subscription, found = subscribe(unit, 0, 0), [None]
        while not isinstance(found[-1], Watermark):
            unit.tick(0)
            found += unit.take(subscription, 0)
        return found[-1]

    first = settled_unit(PLAN, HELD)
    assert not watermark(first).unsettled
    unit = restored(written(first), PLAN)
    assert watermark(unit).unsettled
    for worker in WORKERS:
        join(unit, agent_of(PLAN, worker, HELD[worker]))
    assert not watermark(unit).unsettled


def test_the_epoch_is_new_even_if_a_clock_went_back() -> None:
    first = settled_unit(PLAN, HELD)
    assert restored(written(first), PLAN, epoch=first.epoch - 5).epoch == first.epoch + 1
    assert restored(written(first), PLAN, epoch=first.epoch + 5).epoch == first.epoch + 5


# --- another plan ---------------------------------------------------------------------------------


def moved(plan: Plan, worker: str, slot: int) -> Plan:
    return replace(
        plan,
        workers=tuple(replace(each, slot=slot) if each.id == worker else each for each in plan.workers),
    )


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_that_left_or_has_another_place_is_left_out_and_nobody_else(worker: str) -> None:
    data = written(settled_unit(PLAN, HELD))
    rest = {each: HELD[each] for each in WORKERS if each != worker}
    for plan in (
        replace(PLAN, workers=tuple(each for each in PLAN.workers if each.id != worker)),
        moved(PLAN, worker, 5),
    ):
        unit = restored(data, plan)
        found = held(unit)
        assert found.pop(worker, {}) == {}
        assert found == rest
        assert set(unit.live_workers()) == set(rest)
        assert unit.entries == sum(
            len({key for each in rest if each[0] == region for key in rest[each]}) for region in "ab"
        )


def test_a_place_given_to_another_worker_has_nothing_of_the_one_before() -> None:
    workers = tuple(replace(each, id="a-9") if each.id == "a-0" else each for each in PLAN.workers)
    unit = restored(written(settled_unit(PLAN, HELD)), replace(PLAN, workers=workers))
    assert held(unit) == {"a-9": {}, "a-1": HELD["a-1"], "b-0": HELD["b-0"]}


def test_a_worker_that_is_new_in_the_plan_begins_with_nothing() -> None:
    fewer = replace(PLAN, workers=PLAN.workers[:2])
    data = written(settled_unit(fewer, {each: HELD[each] for each in WORKERS[:2]}))
    unit = restored(data, PLAN)
    assert held(unit) == {**HELD, "b-0": {}}
    join(unit, agent_of(PLAN, "b-0", HELD["b-0"]))
    assert held(unit) == HELD


@pytest.mark.parametrize("version", [1, 2, 9])
def test_any_older_plan_and_the_next_are_taken(version: int) -> None:
    data = written(settled_unit(replication_plan(plan_version=version + 1), HELD))
    for later in (version, version + 1, version + 40):
        assert held(restored(data, replication_plan(plan_version=later))) == HELD
