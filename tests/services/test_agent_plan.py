"""A running agent takes the next version of its plan: other lengths, edges and workers that come and go."""

from dataclasses import replace

import pytest

from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Edge
from services.runtime.settings import SettingsError
from tests.services.agent_doubles import (
    ListeningEdge,
    ScriptedEngine,
    eventually,
    keys_of,
    served_edge,
    stored,
)
from tests.services.test_agent_engine import PROMPT, Scene, scene


def switch_of(at_work: Scene):
    desk = at_work.process.ops._plan
    assert desk is not None
    assert desk.component is not None
    return desk.component


async def test_a_unit_hears_of_new_lengths_before_old_ones_are_withdrawn():
    engine = ScriptedEngine()
    await engine.start()
    engine.publish(stored(PROMPT))
    async with scene(engine) as at_work:
        await at_work.holds(PROMPT)
        plan = replace(at_work.plan, plan_version=2, lengths=replace(at_work.plan.lengths, stretch=1.4))
        assert set(registered_lengths(plan).tolist()) != set(registered_lengths(at_work.plan).tolist())
        switch = switch_of(at_work)
        switch.check_plan(plan)
        await switch.apply_plan(plan)
        both = keys_of(at_work.plan, PROMPT) | keys_of(plan, PROMPT)
        await eventually(lambda: set(at_work.unit.held) == both, "both versions' lengths")
        await switch.settle_plan()
        await eventually(lambda: set(at_work.unit.held) == keys_of(plan, PROMPT), "the new lengths alone")
        await at_work.ready()


async def test_a_shorter_lease_is_renewed_from_the_next_plan_on():
    """By the plan before, the next renewal would be due in a thousand seconds."""
    async with scene(ScriptedEngine(), lease_ms=3_000_000) as at_work:
        renewals = at_work.unit.renewals
        await eventually(lambda: bool(renewals), "the stream is renewed")
        routing = replace(at_work.plan.routing, lease_ms=600)
        switch = switch_of(at_work)
        await switch.apply_plan(replace(at_work.plan, plan_version=2, routing=routing))
        await eventually(lambda: len(renewals) > 2, "by the new lease")
        await switch.settle_plan()
        told = len(renewals)
        await eventually(lambda: len(renewals) > told + 1, "settled, too")


async def test_an_edge_that_joins_is_told_and_one_that_has_left_is_not():
    engine, joins = ScriptedEngine(), ListeningEdge()
    async with scene(engine) as at_work, served_edge(joins) as address:
        await eventually(lambda: bool(at_work.edge.loads), "the first edge is told")
        new = Edge("edge-new", "us", "127.0.0.1:1", "127.0.0.1:2", address)
        switch = switch_of(at_work)
        await switch.apply_plan(replace(at_work.plan, plan_version=2, edges=(*at_work.plan.edges, new)))
        await eventually(lambda: bool(joins.loads), "the new edge is told")
        assert joins.handshakes[0].plan_version == 2
        old = at_work.worker._load_tasks["edge-us"]
        await switch.settle_plan()
        await switch.apply_plan(replace(at_work.plan, plan_version=3, edges=(new,)))
        await eventually(old.done, "the stream to the edge that left ends")
        told = len(joins.loads)
        await eventually(lambda: len(joins.loads) > told, "the other goes on")
        assert [stream.edge_id for stream in at_work.worker.load_streams] == ["edge-new"]
        left = at_work.plan.edges[0].grpc_address
        assert left in at_work.process._channels
        await switch.settle_plan()
        assert left not in at_work.process._channels, "it is pinged no more"
        assert address in at_work.process._channels


async def test_a_worker_that_leaves_is_served_until_the_plan_is_settled():
    engine = ScriptedEngine()
    async with scene(engine) as at_work:
        await at_work.ready()
        only = at_work.plan.workers[0]
        switch, task = switch_of(at_work), at_work.process._tasks["us-0"]
        await switch.apply_plan(
            replace(at_work.plan, plan_version=2, workers=(replace(only, id="other", slot=1),))
        )
        told = len(at_work.edge.loads)
        await eventually(lambda: len(at_work.edge.loads) > told, "still served")
        await switch.settle_plan()
        await eventually(task.done, "served no more")
        health = at_work.process.ops._health()
        assert (health.ready, health.state) == (False, "left")


async def test_an_address_that_needs_tls_is_refused_before_anything_is_changed():
    async with scene(ScriptedEngine()) as at_work:
        far = Edge("edge-far", "us", "h:1", "h:2", "edge.example.net:1")
        with pytest.raises(SettingsError, match="not on loopback"):
            switch_of(at_work).check_plan(replace(at_work.plan, edges=(*at_work.plan.edges, far)))
