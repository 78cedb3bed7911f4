"""A unit holds for each worker exactly what that worker says, as long as it lives."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.plan.layout import layout_fields
from kvcompass.roles import unit_edits
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    STREAM_FIELD,
    Acknowledgement,
    AgentToUnit,
    FullReport,
    Refusal,
    ReportRequest,
    UnitToAgent,
    Welcome,
)
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_edits import EDIT_SLICE, WORK_SLICES
from kvcompass.roles.worker_source import AgentSession, Registration
from tests.models.replication_agent import TwinAgent, edits_of
from tests.models.replication_fleet import WORKERS, S, replication_plan
from tests.models.replication_table import DictTables

LEASE_US = 3 * S


def new_unit(
    unit_id: str = "unit-0", *, shards: int = 1, epoch: int = 10, now_us: int = 0, **bounds: int
) -> MaintenanceUnit:
    plan = replication_plan(shards=shards)
    return MaintenanceUnit(
        plan,
        unit_id,
        epoch=epoch,
        layout=layout_fields(plan),
        tables=DictTables(),
        now_us=now_us,
        bounds=UnitBounds(**bounds),
    )


def agent(worker_id: str = "a-0", **holdings: int) -> TwinAgent:
    plan = replication_plan()
    return TwinAgent(
        worker_id, layout_fields(plan), holdings={int(key[1:]): tier for key, tier in holdings.items()}
    )


def connect(unit: MaintenanceUnit, source: TwinAgent, now_us: int = 0) -> tuple[AgentSession, Welcome]:
    opened = unit.agent_connected(source.hello(), now_us)
    assert not isinstance(opened, Refusal), opened
    return opened


def held(unit: MaintenanceUnit, worker_id: str = "a-0") -> dict[int, int]:
    keys, tiers = unit.holdings(worker_id)
    return dict(zip(keys.tolist(), tiers.tolist(), strict=True))


def tell(
    unit: MaintenanceUnit, session: AgentSession, messages: list[AgentToUnit], now_us: int = 0
) -> list[UnitToAgent]:
    answers = []
    for message in messages:
        answers += unit.on_agent_message(session, message, now_us)
        while unit.work(session, now_us):
            pass
    return answers


def test_edits_of_a_worker_that_agrees_are_applied_and_acknowledged():
    unit, a = new_unit(), agent()
    session, welcome = connect(unit, a)
    assert welcome == Welcome(unit_epoch=10, lease_ms=3_000, full_report_wanted=False)
    assert tell(unit, session, [a.edit({1: 1, 2: 2}), a.edit({1: 0})]) == [
        Acknowledgement(1),
        Acknowledgement(2),
    ]
    assert held(unit) == a.holdings == {2: 2}


def test_a_worker_that_holds_something_else_is_asked_for_a_report_which_replaces():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1, 2: 1, 3: 2})])
    unit.agent_disconnected(session)
    a.holdings = {2: 2, 3: 2, 4: 1}
    session, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    before = unit.sequence
    tell(unit, session, a.full_report(chunk=2))
    assert held(unit) == a.holdings
    assert unit.sequence == before + 3, "only the three changes become patch groups"


def test_a_worker_that_holds_nothing_reports_nothing_and_replaces_what_was_held():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1})])
    a.holdings = {}
    a.restart()
    session, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    tell(unit, session, a.full_report())
    assert held(unit) == {}


def test_a_hole_makes_the_unit_ask_once_and_ignore_edits_until_the_report():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    a.edit({1: 1})
    answers = tell(unit, session, [a.edit({2: 1}), a.edit({3: 1})])
    assert [type(answer) for answer in answers] == [ReportRequest, Acknowledgement]
    assert held(unit) == {}
    assert (unit.counters.holes, unit.counters.ignored_edits) == (1, 1)
    tell(unit, session, a.full_report())
    assert held(unit) == a.holdings
    tell(unit, session, [a.edit({4: 2})])
    assert held(unit) == a.holdings


def test_an_agent_that_another_spoke_for_is_told_and_believed_again_in_its_own_epoch():
    unit, a, forger = new_unit(), agent(k1=1, k2=2), agent()
    session, _ = connect(unit, a)
    tell(unit, session, a.full_report())
    forger.epoch = 666
    forged, _ = connect(unit, forger)
    assert unit.counters.superseded_agents == 1
    (refusal,) = tell(unit, session, [a.renewal()])
    assert isinstance(refusal, Refusal)
    assert refusal.field == STREAM_FIELD, "it may come again at once"
    session, welcome = connect(unit, a)
    if welcome.full_report_wanted:
        tell(unit, session, a.full_report())
    assert tell(unit, session, [a.edit({3: 1})])[-1] == Acknowledgement(a.sequence)
    assert held(unit) == a.holdings == {1: 1, 2: 2, 3: 1}
    (refusal,) = tell(unit, forged, [forger.edit({4: 1})])
    assert isinstance(refusal, Refusal)
    assert held(unit) == a.holdings
    assert unit.counters.superseded_agents == 2


def test_a_unit_says_how_each_worker_stands():
    unit, a = new_unit(), agent(k1=1)

    def stands(now_us: int) -> tuple[Registration, int | None]:
        told = unit.registered(now_us)["a-0"]
        return told.registration, told.lease_left_us

    assert set(unit.registered(0)) == set(unit.held())
    assert stands(0) == (Registration.ABSENT, None)
    session, _ = connect(unit, a, now_us=1 * S)
    assert stands(2 * S) == (Registration.AWAITED, LEASE_US - 1 * S)
    tell(unit, session, a.full_report(), now_us=2 * S)
    assert stands(2 * S) == (Registration.LIVE, LEASE_US - 1 * S)
    assert unit.registered(2 * S)["a-0"].sequence == a.sequence
    unit.agent_disconnected(session)
    assert stands(2 * S)[0] is Registration.SILENT
    unit.tick(1 * S + LEASE_US)
    assert stands(1 * S + LEASE_US) == (Registration.ENDED, None)


def test_an_old_edit_is_ignored_and_counted():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    first, second = a.edit({1: 1}), a.edit({1: 2})
    assert tell(unit, session, [first, second, first, second]) == [Acknowledgement(1), Acknowledgement(2)]
    assert held(unit) == {1: 2}
    assert unit.counters.old_messages == 2


def test_edits_between_the_chunks_of_a_report_are_part_of_it():
    unit, a = new_unit(), agent(k1=1, k2=1, k3=1)
    session, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    head, tail = a.full_report(chunk=2)
    assert isinstance(tail, FullReport)
    between = edits_of(tail.sequence, {1: 0, 9: 2})
    tail = FullReport(tail.sequence + 1, tail.keys, tail.tiers, first=False, last=True)
    tell(unit, session, [head, between, tail])
    assert held(unit) == {2: 1, 3: 1, 9: 2}


def test_a_lost_chunk_makes_the_unit_ask_again():
    unit, a = new_unit(), agent(k1=1, k2=1, k3=1, k4=1)
    session, _ = connect(unit, a)
    first, _, third, fourth = a.full_report(chunk=1)
    answers = tell(unit, session, [first, third, fourth])
    assert [type(answer) for answer in answers] == [Acknowledgement, ReportRequest]
    assert held(unit) == {1: 1}, "what came before the hole, and nothing after it"
    tell(unit, session, a.full_report())
    assert held(unit) == a.holdings


def test_a_renewal_that_is_ahead_shows_that_the_last_edit_was_lost():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    a.edit({1: 1})
    answers = tell(unit, session, [a.renewal()], 1)
    assert [type(answer) for answer in answers] == [ReportRequest]


def test_a_worker_whose_digest_drifts_is_asked_for_a_report():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1})])
    a.holdings[2] = 1
    assert tell(unit, session, [a.renewal()], 1 * S) == []
    answers = tell(unit, session, [a.renewal()], 6 * S)
    assert [type(answer) for answer in answers] == [ReportRequest]
    assert unit.counters.digest_mismatches == 1


def test_a_lost_report_request_is_repeated_but_not_at_every_renewal():
    unit, a = new_unit(), agent(k1=1)
    session, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    asked = [bool(tell(unit, session, [a.renewal()], now)) for now in (S // 2, S, S + S // 2, 2 * S)]
    assert asked == [False, True, False, True]


def test_only_renewals_extend_a_lease_and_its_end_clears_the_worker_alone():
    unit, a, b = new_unit(), agent("a-0"), agent("a-1")
    (session_a, _), (session_b, _) = connect(unit, a), connect(unit, b)
    tell(unit, session_a, [a.edit({1: 1, 2: 1})])
    tell(unit, session_b, [b.edit({1: 2})])
    tell(unit, session_b, [b.renewal()], 2 * S)
    tell(unit, session_a, [a.edit({3: 1})], LEASE_US - 1)
    unit.tick(LEASE_US - 1)
    assert held(unit, "a-0") == a.holdings
    unit.tick(LEASE_US)
    assert held(unit, "a-0") == {}
    assert held(unit, "a-1") == b.holdings
    assert unit.counters.leases_ended == 1
    assert unit.live_workers() == ["a-1"]


def test_a_worker_that_renews_after_its_lease_has_ended_is_asked_for_everything():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1})])
    unit.tick(LEASE_US)
    assert tell(unit, session, [a.edit({2: 1})], 4 * S) == [Acknowledgement(2)]
    assert held(unit) == {}
    answers = tell(unit, session, [a.renewal()], 4 * S)
    assert [type(answer) for answer in answers] == [ReportRequest]
    tell(unit, session, a.full_report(), 4 * S)
    assert held(unit) == a.holdings


def test_a_reconnecting_agent_of_a_dead_engine_does_not_bring_its_worker_back():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1})])
    unit.tick(LEASE_US)
    session, welcome = connect(unit, a, 4 * S)
    assert not welcome.full_report_wanted
    tell(unit, session, [*a.full_report(), a.edit({2: 1})], 4 * S)
    assert held(unit) == {}
    assert unit.live_workers() == []


def test_who_speaks_in_an_agents_own_epoch_is_believed_as_long_as_its_stream_is_the_newest():
    unit, a, forger = new_unit(), agent(k1=1, k2=2), agent()
    session, _ = connect(unit, a)
    tell(unit, session, a.full_report())
    forger.sequence = 2**63
    forged, _ = connect(unit, forger)
    assert forger.epoch == a.epoch
    assert (unit.counters.superseded_streams, unit.counters.superseded_agents) == (1, 0)
    unit.agent_disconnected(forged)
    assert session.turn.is_over
    assert unit.why_over(session).field == STREAM_FIELD, "it may come again at once"
    session, welcome = connect(unit, a)
    if welcome.full_report_wanted:
        tell(unit, session, a.full_report())
    assert tell(unit, session, [a.edit({3: 1})]) == [Acknowledgement(a.sequence)]
    assert held(unit) == a.holdings == {1: 1, 2: 2, 3: 1}


FORGERIES = st.tuples(
    st.sampled_from([1, 1, 2]), st.sampled_from([0, 1, 7, 2**63, 2**64 - 2]), st.integers(0, 3), st.booleans()
)


@given(st.lists(st.one_of(FORGERIES, st.none()), max_size=12))
def test_whatever_was_said_in_an_agents_name_it_is_believed_again_with_its_next_stream(forgeries):
    """Forged streams of any epoch and sequence, and what they edit, between the agent's own (None)."""
    unit, a = new_unit(), agent(k1=1)
    for forgery in (*forgeries, None):
        if forgery is None:
            session, welcome = connect(unit, a)
            if welcome.full_report_wanted:
                tell(unit, session, a.full_report())
            answers = tell(unit, session, [a.edit({10 + a.sequence: 1}), a.renewal()])
            assert answers == [Acknowledgement(a.sequence)]
            assert held(unit) == a.holdings
            assert unit.registered(0)["a-0"].registration is Registration.LIVE
            continue
        forger = agent(k5=2)
        forger.epoch, forger.sequence, edits, stays = forgery
        session, _ = connect(unit, forger)
        tell(unit, session, [forger.edit({20 + number: 1}) for number in range(edits)])
        if not stays:
            unit.agent_disconnected(session)


def test_a_worker_reports_of_itself_alone():
    unit, a, b = new_unit(), agent("a-0"), agent("a-1")
    refusal = unit.agent_connected(replace(a.hello(), worker_id="x" * (4 << 20)), 0)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "component_id"
    assert len(refusal.message) < 200
    refusal = unit.agent_connected(replace(b.hello(), worker_id="a-0"), 0)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "component_id"


def test_a_new_stream_of_a_worker_replaces_the_old_one():
    unit, a = new_unit(), agent()
    old, _ = connect(unit, a)
    new, _ = connect(unit, a)
    assert old.turn.is_over
    assert not new.turn.is_over
    assert unit.on_agent_message(old, a.renewal(), 0) == [unit.why_over(old)]
    unit.agent_disconnected(old)
    assert unit.on_agent_message(new, a.edit({1: 1}), 0) == [Acknowledgement(1)]


def test_a_stranger_another_layout_and_an_old_plan_are_refused_by_name():
    unit = new_unit()
    stranger, other, old, near = agent("z-9"), agent(), agent(), agent()
    other.layout = {**other.layout, "quantum": "256"}
    old.plan_version, near.plan_version = 3, 2
    refusals = [unit.agent_connected(source.hello(), 0) for source in (stranger, other, old)]
    fields = [refusal.field for refusal in refusals if isinstance(refusal, Refusal)]
    assert fields == ["worker_id", "quantum", "plan_version"]
    assert unit.counters.refusals == 3
    connect(unit, near)


@pytest.mark.parametrize("stray", [0, 2**63 - 1])
@pytest.mark.parametrize("others", [0, 2, 60])
def test_a_key_of_another_shard_is_refused(stray: int, others: int):
    unit, plan = new_unit("unit-1", shards=3), replication_plan(shards=3)
    a = TwinAgent("a-0", layout_fields(plan))
    session, _ = connect(unit, a)
    own = {2**62 + key: 1 for key in range(others)}
    assert unit.on_agent_message(session, a.edit(own), 0) == [Acknowledgement(1)]
    (refusal,) = unit.on_agent_message(session, a.edit(own | {stray: 1}), 0)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "edits.keys"


def test_a_report_has_a_bound():
    unit, a = new_unit(report_keys=3), agent(k1=1, k2=1, k3=1, k4=1)
    session, _ = connect(unit, a)
    answers = tell(unit, session, a.full_report(chunk=4))
    assert [type(answer) for answer in answers] == [Refusal]


def test_edits_between_the_chunks_of_a_report_count_toward_its_bound():
    unit, a = new_unit(report_keys=3), agent(k1=1, k2=1, k3=1, k4=1)
    session, _ = connect(unit, a)
    first, *_ = a.full_report(chunk=2)
    a.sequence = first.sequence
    answers = tell(unit, session, [first, a.edit({5: 1}), a.edit({6: 1})])
    assert [type(answer) for answer in answers] == [Acknowledgement, Acknowledgement, Refusal]
    assert answers[-1].field == "full_report.keys"


def test_a_large_report_is_taken_in_part_by_part_and_in_order():
    unit, a = new_unit(), agent()
    a.holdings = dict.fromkeys(range(3 * WORK_SLICES * EDIT_SLICE), 1)
    session, _ = connect(unit, a)
    connect(unit, agent("a-1"))
    connect(unit, agent("b-0"))
    (report,) = a.full_report(chunk=len(a.holdings))
    assert unit.on_agent_message(session, report, 0) == [Acknowledgement(1)]
    assert unit.counters.edited_keys == WORK_SLICES * EDIT_SLICE
    assert not unit.settled
    assert unit.on_agent_message(session, a.edit({0: 0, 1: 2}), 0) == [Acknowledgement(2)]
    assert unit.on_agent_message(session, a.renewal(), 6 * S) == []
    while unit.work(session, 0):
        pass
    assert held(unit) == a.holdings
    assert unit.settled


def test_what_a_replaced_stream_left_undone_is_dropped():
    unit, a = new_unit(), agent()
    a.holdings = dict.fromkeys(range(2 * WORK_SLICES * EDIT_SLICE), 1)
    old, _ = connect(unit, a)
    (report,) = a.full_report(chunk=len(a.holdings))
    unit.on_agent_message(old, report, 0)
    new, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    assert not unit.work(old, 0)
    a.holdings = {1: 2}
    tell(unit, new, a.full_report())
    assert held(unit) == {1: 2}


def test_a_unit_that_did_not_run_blames_nobody():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1})])
    unit.stalled(5 * S)
    unit.tick(LEASE_US + 5 * S - 1)
    assert held(unit) == {1: 1}
    unit.tick(LEASE_US + 5 * S)
    assert held(unit) == {}


def test_a_unit_that_drains_takes_silence_for_nothing():
    unit, a = new_unit(), agent(k1=1)
    session, _ = connect(unit, a)
    tell(unit, session, [*a.full_report(), a.renewal()])
    for other in WORKERS[1:]:
        connect(unit, agent(other))
    assert unit.settled
    unit.drain()
    unit.agent_disconnected(session)
    unit.tick(100 * LEASE_US)
    assert (held(unit), unit.counters.leases_ended) == ({1: 1}, 0)

    half_refilled = new_unit()
    half_refilled.drain()
    half_refilled.tick(100 * LEASE_US)
    assert not half_refilled.settled
    for each in WORKERS:
        connect(half_refilled, agent(each))
    assert half_refilled.settled, "all have said what they hold"


def test_a_new_unit_settles_when_every_worker_has_reported_or_had_its_chance():
    unit, a, b = new_unit(), agent("a-0", k1=1), agent("a-1")
    session, _ = connect(unit, a)
    connect(unit, b)
    assert unit.awaited_workers() == ["a-0", "b-0"]
    tell(unit, session, [*a.full_report(), a.renewal()], S)
    assert unit.awaited_workers() == ["b-0"]
    assert not unit.settled
    connect(unit, agent("b-0"))
    assert unit.settled

    waiting = new_unit()
    waiting.tick(2 * LEASE_US - 1)
    assert not waiting.settled
    waiting.tick(2 * LEASE_US)
    assert waiting.settled


def test_time_ends_the_waiting_for_absent_workers_not_for_a_report_that_arrives():
    unit, a = new_unit(settle_reports_leases=8), agent(k1=1, k2=1, k3=1)
    session, _ = connect(unit, a)
    first, second, last = a.full_report(chunk=1)
    a.sequence = second.sequence
    tell(unit, session, [first, second])
    for now_us in range(0, 8 * LEASE_US, LEASE_US // 2):
        tell(unit, session, [a.renewal()], now_us)
        unit.tick(now_us)
        assert not unit.settled
    tell(unit, session, [last], 8 * LEASE_US - 1)
    assert unit.settled and held(unit) == a.holdings


def test_a_report_that_never_ends_holds_nobody_up_for_ever():
    unit, a = new_unit(settle_reports_leases=3), agent(k1=1, k2=1)
    session, _ = connect(unit, a)
    tell(unit, session, a.full_report(chunk=1)[:1])
    unit.stalled(100 * S)
    unit.tick(3 * LEASE_US - 1)
    assert not unit.settled
    unit.tick(3 * LEASE_US)
    assert unit.settled


def test_what_a_broken_stream_left_undone_is_dropped_and_the_worker_awaited_as_an_absent_one():
    unit, a = new_unit(), agent()
    a.holdings = dict.fromkeys(range(2 * WORK_SLICES * EDIT_SLICE), 1)
    session, _ = connect(unit, a)
    (report,) = a.full_report(chunk=len(a.holdings))
    unit.on_agent_message(session, report, 0)
    unit.agent_disconnected(session)
    assert not unit._sources["a-0"].backlog, "nobody would work it off"
    assert "a-0" in unit.awaited_workers()
    session, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    unit.agent_disconnected(session)
    unit.stalled(100 * S)
    unit.tick(2 * LEASE_US)
    assert unit.settled


holdings = st.dictionaries(st.integers(0, 30), st.sampled_from([1, 2]))


@given(before=holdings, after=holdings, chunk=st.integers(1, 31), slice_keys=st.integers(1, 9))
def test_a_report_ends_in_what_it_names_by_the_fewest_edits(before, after, chunk, slice_keys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_edits, "EDIT_SLICE", slice_keys)
        unit, a = new_unit(), agent()
        session, _ = connect(unit, a)
        a.holdings = dict(before)
        tell(unit, session, a.full_report(chunk))
        assert held(unit) == before
        sequence = unit.sequence
        a.holdings = dict(after)
        tell(unit, session, a.full_report(chunk))
    changes = {key for key in before | after if before.get(key) != after.get(key)}
    assert held(unit) == after
    assert unit.sequence == sequence + len(changes)
    assert tell(unit, session, [a.renewal()], 6 * S) == []


def test_what_a_report_does_not_name_goes_last_and_part_by_part():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit(dict.fromkeys(range(9), 1))])
    a.holdings = {8: 2, 9: 1}
    first, last = a.full_report(chunk=1)
    tell(unit, session, [first])
    assert held(unit) == dict.fromkeys(range(8), 1) | {8: 2}, "all that is left may still be named"
    unit.on_agent_message(session, last, 0)
    left = [len(held(unit))]
    while unit.work(session, 0):
        left.append(len(held(unit)))
    assert left[0] == 10 and len(left) > 3 and held(unit) == a.holdings


def test_a_report_that_breaks_off_leaves_what_it_named_and_withdraws_nothing():
    unit, a = new_unit(), agent()
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({1: 1, 2: 1})])
    a.holdings = {3: 1, 4: 1}
    tell(unit, session, a.full_report(chunk=1)[:1])
    unit.agent_disconnected(session)
    unit.tick(1)
    assert held(unit) == {1: 1, 2: 1, 3: 1}
    assert "a-0" in unit.awaited_workers()
    session, welcome = connect(unit, a)
    assert welcome.full_report_wanted
    tell(unit, session, a.full_report())
    assert held(unit) == a.holdings


@pytest.mark.parametrize("worker_id", WORKERS)
def test_every_worker_of_the_plan_has_its_own_fields(worker_id):
    unit, a = new_unit(), agent(worker_id)
    session, _ = connect(unit, a)
    tell(unit, session, [a.edit({7: 2})])
    assert [held(unit, worker) for worker in WORKERS] == [
        {7: 2} if worker == worker_id else {} for worker in WORKERS
    ]
