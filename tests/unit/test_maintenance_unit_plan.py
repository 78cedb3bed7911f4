"""A unit goes from one version of its plan to the next: who stays keeps its keys, who left is cleared."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import Acknowledgement, Refusal, SubscribeRequest
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.worker_source import AgentSession
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import S, replication_plan
from tests.models.replication_table import DictTables

PLAN = replication_plan()
LAYOUT = layout_fields(PLAN)
NEW = replace(PLAN.workers[0], id="a-9", slot=9, url="http://127.0.0.1:8999", events="tcp://127.0.0.1:8998")


def changed(*workers: object, version: int = 2, lease_ms: int = 3_000) -> Plan:
    routing = replace(PLAN.routing, lease_ms=lease_ms)
    return replace(PLAN, plan_version=version, workers=tuple(workers), routing=routing)


def new_unit() -> MaintenanceUnit:
    return MaintenanceUnit(PLAN, "unit-0", epoch=10, layout=LAYOUT, tables=DictTables(), now_us=0)


def connect(unit: MaintenanceUnit, agent: TwinAgent, now_us: int = 0) -> AgentSession:
    opened = unit.agent_connected(agent.hello(), now_us)
    assert not isinstance(opened, Refusal), opened
    return opened[0]


def tell(
    unit: MaintenanceUnit, session: AgentSession, agent: TwinAgent, now_us: int = 0, **tiers: int
) -> object:
    edit = agent.edit({int(key[1:]): tier for key, tier in tiers.items()})
    answers = unit.on_agent_message(session, edit, now_us)
    while unit.work(session, now_us):
        pass
    return answers


def held(unit: MaintenanceUnit, worker_id: str) -> dict[int, int]:
    keys, tiers = unit.holdings(worker_id)
    return dict(zip(keys.tolist(), tiers.tolist(), strict=True))


@pytest.mark.parametrize("version", [1, 2])
def test_a_new_workers_agent_is_refused_before_and_taken_after_whichever_version_it_runs(version: int):
    unit, agent = new_unit(), TwinAgent("a-9", LAYOUT, plan_version=version)
    refusal = unit.agent_connected(agent.hello(), 0)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "worker_id"
    unit.apply_plan(changed(*PLAN.workers, NEW))
    tell(unit, connect(unit, agent), agent, k1=1, k2=2)
    assert held(unit, "a-9") == {1: 1, 2: 2}


def test_a_worker_that_leaves_is_served_until_the_plan_is_settled_then_cleared_and_refused():
    unit = new_unit()
    leaver, stayer = TwinAgent("a-0", LAYOUT), TwinAgent("a-1", LAYOUT)
    session, other = connect(unit, leaver), connect(unit, stayer)
    tell(unit, session, leaver, k1=1)
    tell(unit, other, stayer, k1=2, k5=1)
    unit.apply_plan(changed(*PLAN.workers[1:]))
    assert tell(unit, session, leaver, k2=1) == [Acknowledgement(2)]
    assert held(unit, "a-0") == {1: 1, 2: 1}
    unit.settle_plan()
    while unit.tick(1_000):
        pass
    assert "a-0" not in unit.held()
    assert unit.entries == 2
    assert held(unit, "a-1") == stayer.holdings == {1: 2, 5: 1}
    [refusal] = unit.on_agent_message(session, leaver.edit({3: 1}), 1_000)
    assert isinstance(refusal, Refusal)
    assert refusal.field == "worker_id"
    assert not unit.work(session, 1_000)
    unit.agent_disconnected(session)
    again = unit.agent_connected(leaver.hello(), 2_000)
    assert isinstance(again, Refusal)


def test_clearing_who_left_reaches_the_views_as_patches():
    unit, leaver = new_unit(), TwinAgent("a-0", LAYOUT)
    tell(unit, connect(unit, leaver), leaver, k1=1)
    before = unit.sequence
    unit.apply_plan(changed(*PLAN.workers[1:]))
    unit.settle_plan()
    while unit.tick(1_000):
        pass
    assert unit.sequence > before
    assert unit.counters.rebuilds == 0


@pytest.mark.parametrize(("lease_ms", "between_ms"), [(1_000, 3_000), (9_000, 9_000)])
def test_between_two_versions_the_longer_lease_holds(lease_ms: int, between_ms: int):
    unit, agent = new_unit(), TwinAgent("a-0", LAYOUT)
    session = connect(unit, agent)
    unit.apply_plan(changed(*PLAN.workers, lease_ms=lease_ms))
    unit.on_agent_message(session, agent.renewal(), S)
    unit.tick(S + 1_000 * between_ms - 1)
    assert "a-0" in unit.live_workers()
    unit.settle_plan()
    unit.on_agent_message(session, agent.renewal(), 20 * S)
    unit.tick(20 * S + 1_000 * lease_ms - 1)
    assert "a-0" in unit.live_workers()
    unit.tick(20 * S + 1_000 * lease_ms)
    assert "a-0" not in unit.live_workers()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("edit", "apply", "settle")),
            st.sampled_from((*(worker.id for worker in PLAN.workers), "a-9")),
            st.integers(0, 9),
            st.integers(0, 2),
        ),
        max_size=40,
    )
)
def test_a_unit_holds_what_the_workers_of_its_plans_say(steps: list[tuple[str, str, int, int]]):
    """Whatever joins and leaves in between. `apply` takes a worker in or out, and never all of them.

    One that comes back has a place that was somebody's, and reports once the plan is settled.
    """
    unit, places = new_unit(), {worker.id: worker for worker in (*PLAN.workers, NEW)}
    planned, known = {worker.id for worker in PLAN.workers}, {worker.id for worker in PLAN.workers}
    agents: dict[str, tuple[TwinAgent, AgentSession]] = {}
    version, settled, epoch = 1, True, 1
    been, waiting = set(planned), set[str]()
    for what, worker_id, key, tier in steps:
        if what == "apply" and settled and (len(planned) > 1 or worker_id not in planned):
            planned = planned ^ {worker_id}
            waiting = (planned - known) & been
            known |= planned
            been |= planned
            version, settled = version + 1, False
            unit.apply_plan(changed(*(places[each] for each in sorted(planned)), version=version))
        elif what == "settle":
            unit.settle_plan()
            while unit.tick(0):
                pass
            known, settled, waiting = set(planned), True, set()
            agents = {each: pair for each, pair in agents.items() if each in known}
        elif what == "edit" and worker_id in known - waiting:
            if worker_id not in agents:
                epoch += 1
                agent = TwinAgent(worker_id, LAYOUT, plan_version=version, epoch=epoch)
                agents[worker_id] = agent, connect(unit, agent)
            agent, session = agents[worker_id]
            if tier or key in agent.holdings:
                tell(unit, session, agent, **{f"k{key}": tier})
        for each, (agent, _) in agents.items():
            assert held(unit, each) == agent.holdings
        assert set(unit.held()) == known


@pytest.mark.parametrize(("version", "taken"), [(1, True), (2, True), (3, True), (4, False)])
def test_agents_and_edges_may_be_one_version_before_or_after_the_unit(version: int, taken: bool):
    unit = new_unit()
    unit.apply_plan(changed(*PLAN.workers, version=2))
    hello = TwinAgent("a-0", LAYOUT, plan_version=version).hello()
    request = SubscribeRequest(replace(hello.handshake, component_id="edge-a"), 0, 0)
    for opened in (unit.agent_connected(hello, 0), unit.subscribe(request, 0)):
        if taken:
            assert not isinstance(opened, Refusal)
        else:
            assert isinstance(opened, Refusal)
            assert opened.field == "plan_version"


def test_an_edge_of_a_newer_plan_waits_until_workers_that_left_are_cleared():
    """It may have somebody else at their places: it gets nothing in which they still are."""
    unit, leaver = new_unit(), TwinAgent("a-0", LAYOUT)
    tell(unit, connect(unit, leaver), leaver, k1=1)
    unit.apply_plan(changed(*PLAN.workers[1:], version=2))
    hello = TwinAgent("a-1", LAYOUT).hello()

    def opened(version: int) -> object:
        handshake = replace(hello.handshake, component_id="edge-a", plan_version=version)
        return unit.subscribe(SubscribeRequest(handshake, 10, 0), 0)

    for what in (lambda: None, unit.settle_plan):
        what()
        refusal = opened(3)
        assert isinstance(refusal, Refusal)
        assert refusal.field == "plan_version"
        assert isinstance(opened(2), Subscription)
    unit.tick(0)
    subscription = opened(3)
    assert isinstance(subscription, Subscription)
    assert subscription.cursor is None, "what came before the clearing is not told"
