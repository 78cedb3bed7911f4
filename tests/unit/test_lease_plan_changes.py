"""No change of the plan's lease ends the lease of a worker whose agent renews on time."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import Refusal, Renewal, Welcome
from kvcompass.roles.renewal_times import RENEWALS_A_LEASE
from kvcompass.roles.unit_report import UnitReport
from tests.models.replication_fleet import replication_plan
from tests.models.replication_table import DictTables
from tests.models.replication_worker import HeldKeys

WORKER = "a-0"
STEPS = ("unit applies", "agent applies", "agent settles", "unit settles")
"""In the order of a rollout (`kvcompass.plan.rollout`)."""


class Couple:
    """An agent's report and a unit with nothing between them. The agent does all it does on time."""

    def __init__(self, old_ms: int, new_ms: int) -> None:
        self.before = replication_plan(lease_ms=old_ms)
        self.after = replication_plan(lease_ms=new_ms, plan_version=2)
        self.now_us = 0
        layout = layout_fields(self.before)
        self.unit = MaintenanceUnit(
            self.before, "unit-0", epoch=10, layout=layout, tables=DictTables(), now_us=0
        )
        self.agent = HeldKeys(WORKER)
        self.report = UnitReport(self.agent, 0, layout, 1, lease_ms=old_ms)
        self.renewed_us: list[int] = []
        self.connect()
        self.report.on_edits(self.agent.edit({1: 1}))

    def connect(self) -> None:
        opened = self.unit.agent_connected(self.report.connect(), self.now_us)
        assert not isinstance(opened, Refusal), opened
        self.session, welcome = opened
        self.report.on_message(welcome)

    def take(self, step: str) -> None:
        if step == "unit applies":
            self.unit.apply_plan(self.after)
        elif step == "agent applies":
            self.report.apply_plan(2, self.after.routing.lease_ms)
        elif step == "agent settles":
            self.report.settle_plan()
        elif step == "unit settles":
            self.unit.settle_plan()
        else:
            self.unit.agent_disconnected(self.session)
            self.connect()

    def run_until(self, end_us: int) -> None:
        while (due_us := max(self.now_us, self.report.renewal_at_us)) < end_us:
            self.now_us = due_us
            while self.unit.tick(due_us):
                pass
            self.report.tend_lease(due_us, renewable=True)
            self.exchange()
        self.now_us = end_us

    def exchange(self) -> None:
        while (message := self.report.take()) is not None:
            if isinstance(message, Renewal):
                self.renewed_us.append(self.now_us)
            for answer in self.unit.on_agent_message(self.session, message, self.now_us):
                self.report.on_message(answer)
            while self.unit.work(self.session, self.now_us):
                pass


LEFT_OUT = tuple(step for step in STEPS if step.startswith("unit"))
"""`kvcompass plan apply --without` the worker: its agent hears nothing of the version."""
LEASES_MS = st.integers(600, 3_000)
GAPS = st.lists(st.integers(0, 2_000), min_size=5, max_size=5)
"""Between two steps, in thousandths of the longer lease."""


@settings(max_examples=40, deadline=None)
@given(LEASES_MS, LEASES_MS, st.sampled_from([STEPS, LEFT_OUT]), GAPS, st.none() | st.integers(0, 4))
@example(3_000, 900, STEPS, [100, 100, 100, 100, 0], None)
@example(900, 3_000, STEPS, [100, 100, 100, 100, 0], None)
@example(3_000, 900, LEFT_OUT, [100, 100, 100, 100, 0], None)
@example(3_000, 900, LEFT_OUT, [100, 0, 0, 0, 0], None)
def test_a_worker_renewed_on_time_lives_through_any_change_of_the_lease(
    old_ms: int, new_ms: int, taken: tuple[str, ...], gaps: list[int], reconnects: int | None
) -> None:
    """Also when its stream is opened anew between two steps. And it is renewed no more than it need be."""
    couple = Couple(old_ms, new_ms)
    longer_ms = max(old_ms, new_ms)
    steps = list(taken)
    if reconnects is not None:
        steps.insert(reconnects, "stream breaks")
    for gap, step in zip(gaps, steps, strict=False):
        couple.run_until(couple.now_us + gap * longer_ms)
        couple.take(step)
    couple.run_until(couple.now_us + 4_000 * longer_ms)
    assert couple.unit.counters.leases_ended == 0
    assert couple.report.lease_ms == new_ms, "as the unit told it"
    left_us = couple.unit.registered(couple.now_us)[WORKER].lease_left_us
    assert left_us is not None and left_us <= 1_000 * new_ms, "what was told before holds no longer"
    assert couple.unit.live_workers() == [WORKER]
    assert couple.unit.holdings(WORKER)[0].tolist() == [1]
    least_us = min(old_ms, new_ms) * 1_000 // RENEWALS_A_LEASE
    apart_us = [b - a for a, b in zip(couple.renewed_us, couple.renewed_us[1:], strict=False)]
    assert sum(apart < least_us for apart in apart_us) <= (reconnects is not None)


@given(LEASES_MS, LEASES_MS, LEASES_MS)
def test_the_shortest_lease_that_may_hold_is_renewed_three_times(
    old_ms: int, new_ms: int, told_ms: int
) -> None:
    """Both versions' until the plan is settled, and what the unit told on the stream that is open."""
    report = UnitReport(HeldKeys(WORKER), 0, {}, 1, lease_ms=old_ms)
    report.connect()
    report.on_message(Welcome(1, told_ms, full_report_wanted=False))
    assert report.renewal_at_us == 0
    report.tend_lease(7_000_000, renewable=True)
    for step, leases in (
        (lambda: None, (old_ms, told_ms)),
        (lambda: report.apply_plan(2, new_ms), (old_ms, new_ms, told_ms)),
        (report.settle_plan, (new_ms, told_ms)),
    ):
        step()
        assert report.renewal_at_us == 7_000_000 + min(leases) * 1_000 // 3
    report.connect()
    assert report.renewal_at_us == 0, "the first renewal of a stream"


def test_nothing_is_renewed_before_it_is_due_nor_while_the_engine_is_silent() -> None:
    report = UnitReport(HeldKeys(WORKER), 0, {}, 1, lease_ms=3_000)
    report.connect()
    report.on_message(Welcome(1, 3_000, full_report_wanted=False))
    seen = []
    for now_ms, renewable in (
        (0, True),
        (999, True),
        (1_000, False),
        (1_099, True),
        (1_100, True),
        (2_099, True),
    ):
        report.tend_lease(now_ms * 1_000, renewable=renewable)
        seen.append(isinstance(report.take(), Renewal))
    assert seen == [True, False, False, False, True, False]
