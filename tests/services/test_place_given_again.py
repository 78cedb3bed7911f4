"""A unit behind real gRPC refuses a plan that gives a place again too early, and says who holds it up."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kvcompass.plan import dump_plan
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.rollout import Component, Phase
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    EdgeToUnit,
    Handshake,
    Refusal,
    SubscribeRequest,
    UnitToEdge,
    Watermark,
)
from services.maintenance.health import unit_health
from services.maintenance.metrics import UnitCollector
from services.maintenance.plan_switch import UnitPlanSwitch
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.runtime.plan_desk import PlanDesk
from services.runtime.plan_signature import sign
from services.wire import rpc
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import Served, connected, following, served, until

KEY = "a key of many letters"
PLAN = replace(replication_plan(), index=replace(replication_plan().index, slots_given=(2, 1)))
LEAVER = PLAN.workers[1]
NEW = replace(LEAVER, id="a-9", url="http://127.0.0.1:8999", events="tcp://127.0.0.1:8998")


def version(number: int, workers: Sequence[Worker]) -> Plan:
    return replace(PLAN, plan_version=number, workers=tuple(workers))


STAY = [worker for worker in PLAN.workers if worker is not LEAVER]


class Operator:
    """Brings plans to the unit as `kvcompass plan apply` does."""

    def __init__(self, running: Served, folder: Path) -> None:
        self.running = running
        self.desk = PlanDesk(
            Component.UNIT,
            ["unit-0"],
            PLAN,
            folder / "plan.toml",
            key=KEY,
            component=UnitPlanSwitch(running.unit, running.service.changed),
        )

    async def bring(self, phase: Phase, plan: Plan) -> tuple[int, dict[str, Any]]:
        body = dump_plan(plan).encode()
        status, answer = await self.desk.bring(phase.value, sign(KEY, phase, body), body)
        return status, json.loads(answer)

    async def take(self, plan: Plan) -> None:
        for phase in (Phase.CHECK, Phase.PREPARE, Phase.SETTLE):
            assert (await self.bring(phase, plan))[0] == 200

    async def refusal(self, plan: Plan) -> dict[str, Any]:
        """The same at a check and at every phase that would change something."""
        told = [await self.bring(phase, plan) for phase in (Phase.CHECK, Phase.PREPARE, Phase.SETTLE)]
        assert [status for status, _ in told] == [409, 409, 409]
        assert self.running.unit.plan_version == plan.plan_version - 1
        [refused] = {json.dumps(facts["refused"]) for _, facts in told}
        found: dict[str, Any] = json.loads(refused)
        return found

    def place(self) -> dict[str, Any]:
        [place] = unit_health(self.running.unit, False, now_us()).details["vacant_places"]
        return dict(place)


class SilentEdge:
    """Reads all, and acknowledges what it is told to."""

    def __init__(self, call: grpc.aio.StreamStreamCall[EdgeToUnit, UnitToEdge]) -> None:
        self._call = call

    async def read_to_watermark(self) -> int:
        while True:
            message = await rpc.read(self._call)
            if isinstance(message, Watermark):
                return message.sequence

    async def acknowledge(self, sequence: int) -> None:
        await self._call.write(Acknowledgement(sequence))


async def test_a_place_is_refused_until_all_that_follow_have_acknowledged(tmp_path: Path) -> None:
    async with served(PLAN) as running, following(PLAN, running.address) as edge:
        operator = Operator(running, tmp_path)
        for worker in WORKERS:
            async with connected(TwinAgent(worker, layout_fields(PLAN)), running.address) as agent:
                await agent.edit({1: 1})
                await agent.acknowledged()
        await until(lambda: edge.state is FollowerState.EXACT and edge.tier(1, 0, 1) == 1)
        async with Dialer({}).channel(running.address) as channel:
            call = rpc.subscribe(channel)()
            handshake = Handshake("edge-slow", 1, PROTOCOL_VERSION, 1, layout_fields(PLAN))
            await call.write(SubscribeRequest(handshake, 0, 0))
            slow = SilentEdge(call)
            await slow.read_to_watermark()
            await operator.take(version(2, STAY))
            await until(lambda: edge.tier(1, 0, 1) == 0)
            await until(lambda: operator.place()["state"] == "acknowledging")
            refused = await operator.refusal(version(3, [*STAY, NEW]))
            assert refused["field"] == "worker.a-9.slot"
            for part in ("table 0, slot 1", "edge-slow", "try again", "without --reuse"):
                assert part in refused["why"]
            await until(lambda: operator.place()["held_up_by"] == ["edge-slow"])
            await slow.acknowledge(await slow.read_to_watermark())
            await until(lambda: operator.place()["state"] == "resting")
            assert "version 4 is the first" in (await operator.refusal(version(3, [*STAY, NEW])))["why"]
            call.cancel()
        edge.relay.apply_plan(2)
        await operator.take(version(3, STAY))
        await until(lambda: operator.place()["state"] == "free")
        exposed = _exposed(running)
        assert 'kvcompass_maintenance_vacant_places{state="free"} 1.0' in exposed
        assert 'kvcompass_maintenance_vacant_places{state="resting"} 0.0' in exposed

        assert (await operator.bring(Phase.PREPARE, version(4, [*STAY, NEW])))[0] == 200
        newcomer = TwinAgent("a-9", layout_fields(PLAN), plan_version=4)
        early = running.unit.agent_connected(newcomer.hello(), now_us())
        assert isinstance(early, Refusal)
        assert "when the plan is settled" in early.message
        edge.relay.apply_plan(4)
        edge.relay.places_given_again([(0, 1)])
        assert (await operator.bring(Phase.SETTLE, version(4, [*STAY, NEW])))[0] == 200
        async with connected(newcomer, running.address) as agent:
            await agent.edit({5: 2})
            await until(lambda: edge.tier(5, 0, 1) == 2)
        assert edge.tier(1, 0, 1) == 0
        assert unit_health(running.unit, False, now_us()).details["vacant_places"] == []


async def test_a_plan_that_gives_a_place_in_the_version_that_empties_it_is_refused(tmp_path: Path) -> None:
    async with served(PLAN) as running:
        status, facts = await Operator(running, tmp_path).bring(Phase.PREPARE, version(2, [*STAY, NEW]))
        assert status == 409
        [refused] = [change for change in facts["changes"] if change["why"]]
        assert (refused["field"], refused["what"]) == ("worker.a-9.slot", "the place of a-1")


def _exposed(running: Served) -> str:
    registry = CollectorRegistry()
    registry.register(UnitCollector(running.unit, now_us))
    return generate_latest(registry).decode()
