"""The edge role keeps load true: sequences, piggybacks, broadcasts, and bursts of siblings."""

import numpy as np
import pytest

from kvcompass.fleet import LoadVerdict, WorkerState
from kvcompass.plan.model import Plan
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.messages import AgentLoad
from kvcompass.routing import Decision, Reason
from tests.models.routing_fleets import MS, SECOND, FakeLookup, load, loads_of, make_plan, region_load

NOW_US = 100 * SECOND
US_0, EU_0 = 0, 2
KEYS = np.arange(1, 11, dtype=np.uint64)


def make_role(edge_id: str = "edge-us-0", plan: Plan | None = None, epoch: int = 1) -> EdgeRole:
    plan = plan or make_plan()
    return EdgeRole(plan, edge_id, FakeLookup(len(plan.workers)), epoch=epoch)


def report(role: EdgeRole, worker_id: str, sequence: int, queue_ms: float, *, epoch: int = 1) -> LoadVerdict:
    return role.on_worker_load(AgentLoad(None, epoch, sequence, load(worker_id, queue_ms)), NOW_US)


def queues(role: EdgeRole, now_us: int = NOW_US) -> list[float]:
    role.fleet.refresh(now_us)
    return [float(queue_ms) for queue_ms in role.fleet.queue_ms]


def all_known(role: EdgeRole) -> None:
    for worker, worker_id in enumerate(role.fleet.worker_ids):
        role.fleet.report(worker, load(worker_id), NOW_US)


class TestAgents:
    def test_an_overtaken_load_is_refused_and_a_new_epoch_accepted(self) -> None:
        role = make_role()
        assert report(role, "us-0", 5, 50.0) is LoadVerdict.ACCEPTED
        assert report(role, "us-0", 5, 51.0) is LoadVerdict.OLD_SEQUENCE
        assert report(role, "us-0", 4, 52.0) is LoadVerdict.OLD_SEQUENCE
        assert queues(role)[US_0] == 50.0
        assert report(role, "us-0", 1, 53.0, epoch=2) is LoadVerdict.ACCEPTED
        assert report(role, "us-0", 6, 54.0, epoch=1) is LoadVerdict.OLD_SEQUENCE
        assert queues(role)[US_0] == 53.0
        assert role.load_verdicts[LoadVerdict.OLD_SEQUENCE] == 3

    @pytest.mark.parametrize(
        ("worker_id", "verdict"),
        [("eu-0", LoadVerdict.WRONG_REGION), ("nobody", LoadVerdict.UNKNOWN_SENDER)],
    )
    def test_strangers_are_refused(self, worker_id: str, verdict: LoadVerdict) -> None:
        role = make_role()
        assert report(role, worker_id, 1, 50.0) is verdict
        assert role.fleet.load_of(EU_0, NOW_US) is None


class TestRegions:
    def test_a_vector_travels_from_edge_to_edge(self) -> None:
        here, there = make_role("edge-us-0"), make_role("edge-eu-0")
        for worker_id, queue_ms in (("eu-0", 70.0), ("eu-1", 20.0)):
            report(there, worker_id, 1, queue_ms)
        assert here.on_region_load(there.region_load(NOW_US + 30 * MS), NOW_US) is LoadVerdict.ACCEPTED
        assert queues(here)[EU_0 : EU_0 + 2] == [70.0, 20.0]
        assert here.fleet.age_ms(EU_0, NOW_US) == 30.0

    def test_a_vector_holds_the_sender_s_own_work_and_leaves_out_the_unknown(self) -> None:
        there = make_role("edge-eu-0")
        report(there, "eu-1", 1, 20.0)
        there.carried("r", EU_0 + 1, 300.0, NOW_US)
        vector = there.region_load(NOW_US)
        assert [(item.worker_id, item.queue_ms) for item in loads_of(vector)] == [("eu-1", 320.0)]
        assert loads_of(there.region_load(NOW_US + 10 * SECOND)) == ()

    def test_a_vector_shows_own_work_up_to_its_sending_whatever_the_age_of_its_reports(self) -> None:
        """The sender had carried the request by then, so its estimate holds it already."""
        here = make_role()
        sent_us = NOW_US - 320 * MS
        decision = here.decide(4000, KEYS, "default", sent_us, exclude=frozenset({0, 1, 4, 5}))
        assert isinstance(decision, Decision)
        here.started("r", decision, sent_us)
        item = load(decision.worker_id, 800.0, age_ms=60)
        here.on_region_load(region_load("edge-eu-0", "eu", 1, 1, (item,)), NOW_US)
        assert queues(here)[decision.worker] == 800.0

    def test_every_vector_of_one_report_moves_the_estimate_however_it_travels(self) -> None:
        """Ages are rounded and the way varies, so what a vector knows may seem older than the one before."""
        here, there = make_role("edge-us-0"), make_role("edge-eu-0")
        report(there, "eu-0", 1, 0.0)
        believed = 0.0
        for i in range(10):
            sent_us = NOW_US + i * 9_700
            there.carried(i, EU_0, 1000.0, sent_us)
            vector = there.region_load(sent_us)
            assert here.on_region_load(vector, sent_us + (160 - i % 3) * MS) is LoadVerdict.ACCEPTED
            told_ms = loads_of(vector)[0].queue_ms
            believed = told_ms if i == 0 else (believed + told_ms) / 2
            assert queues(here, sent_us + 160 * MS)[EU_0] == pytest.approx(believed)

    def test_a_prefill_under_way_is_in_the_vector_although_no_engine_reports_it(self) -> None:
        there = make_role("edge-eu-0")
        report(there, "eu-0", 1, 0.0)
        there.carried("r", EU_0, 1000.0, NOW_US)
        there.on_worker_load(AgentLoad(None, 1, 2, load("eu-0", 0.0, running=1)), NOW_US + 50 * MS)
        assert loads_of(there.region_load(NOW_US + 50 * MS))[0].queue_ms == pytest.approx(950.0, abs=1.0)
        there.first_byte("r", NOW_US + 60 * MS)
        assert loads_of(there.region_load(NOW_US + 60 * MS))[0].queue_ms == 0.0

    def test_it_tells_of_workers_that_are_out(self) -> None:
        there = make_role("edge-eu-0")
        there.on_worker_load(AgentLoad(None, 1, 1, load("eu-0", state=WorkerState.UNREACHABLE)), NOW_US)
        assert [item.state for item in loads_of(there.region_load(NOW_US))] == [WorkerState.UNREACHABLE]

    def test_piggybacks_and_broadcasts_share_one_sequence(self) -> None:
        here, there = make_role("edge-us-0"), make_role("edge-eu-0")
        report(there, "eu-0", 1, 70.0)
        first, second = there.region_load(NOW_US), there.piggyback("us", NOW_US)
        assert here.on_region_load(second, NOW_US) is LoadVerdict.ACCEPTED
        assert here.on_region_load(first, NOW_US) is LoadVerdict.OLD_SEQUENCE
        restarted = make_role("edge-eu-0", epoch=2)
        assert here.on_region_load(restarted.region_load(NOW_US), NOW_US) is LoadVerdict.ACCEPTED

    @pytest.mark.parametrize(
        ("edge_id", "region", "verdict"),
        [
            ("edge-eu-9", "eu", LoadVerdict.UNKNOWN_SENDER),
            ("edge-eu-0", "asia", LoadVerdict.WRONG_REGION),
            ("edge-us-0", "us", LoadVerdict.WRONG_REGION),
        ],
    )
    def test_a_vector_must_be_its_sender_s_to_tell(
        self, edge_id: str, region: str, verdict: LoadVerdict
    ) -> None:
        role = make_role()
        message = region_load(
            edge_id, region, 1, 1, (load("eu-0", 9.0), load("asia-0", 9.0), load("us-0", 9.0))
        )
        assert role.on_region_load(message, NOW_US) is verdict
        assert not any(queues(role))

    def test_a_region_speaks_for_its_own_workers_only(self) -> None:
        role = make_role()
        message = region_load("edge-eu-0", "eu", 1, 1, (load("eu-0", 9.0), load("us-0", 9.0), load("x", 9.0)))
        assert role.on_region_load(message, NOW_US) is LoadVerdict.ACCEPTED
        assert queues(role)[EU_0] == 9.0
        assert role.fleet.load_of(US_0, NOW_US) is None
        assert role.load_verdicts[LoadVerdict.WRONG_REGION] == 2

    def test_a_piggyback_replaces_the_broadcast_to_its_region(self) -> None:
        role = make_role()
        assert set(role.broadcasts_due(NOW_US)) == {"edge-eu-0", "edge-asia-0"}
        role.piggyback("eu", NOW_US + 90 * MS)
        assert role.broadcasts_due(NOW_US + 100 * MS) == ("edge-asia-0",)


class TestBursts:
    def decide(self, role: EdgeRole, keys: np.ndarray, now_us: int = NOW_US) -> Decision:
        decision = role.decide(1300, keys, "default", now_us)
        assert isinstance(decision, Decision)
        return decision

    def test_siblings_follow_the_first_while_strangers_spread(self) -> None:
        """Twelve prompts that share 1,152 of 1,300 tokens, before the first of them has been prefilled."""
        siblings, strangers = make_role(), make_role()
        for role in (siblings, strangers):
            all_known(role)
        recomputed = 0.0
        for i in range(12):
            decision = self.decide(siblings, KEYS)
            siblings.started(i, decision, NOW_US)
            recomputed += decision.residual_ms
        apart = 0.0
        for i in range(12):
            decision = self.decide(strangers, KEYS + np.uint64(1000 * i))
            strangers.started(i, decision, NOW_US)
            apart += decision.residual_ms
        assert recomputed < apart / 2

    def test_an_expectation_is_no_claim(self) -> None:
        role = make_role()
        all_known(role)
        role.fleet.suspect(1, NOW_US + SECOND)
        role.started("first", self.decide(role, KEYS), NOW_US)
        sibling = self.decide(role, KEYS)
        assert (sibling.worker, sibling.reason, sibling.match_tokens) == (US_0, Reason.EXPECTED_MATCH, 0)
        role.started("sibling", sibling, NOW_US)
        outcome = role.finished("sibling", 0, NOW_US)
        assert outcome is not None
        assert (outcome.claimed, outcome.wrong_claim, outcome.belief) == (0, False, 1.0)

    def test_when_the_first_fails_its_siblings_expect_nothing(self) -> None:
        role = make_role()
        all_known(role)
        role.started("first", self.decide(role, KEYS), NOW_US)
        role.failed("first", NOW_US)
        assert self.decide(role, KEYS).reason is Reason.NO_MATCH
