"""A plan that the head alone condemns is not read, and only few are read at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cli.plan_visits import Courier, Target
from kvcompass.plan import dump_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component, Phase
from services.runtime.ops import Health, OpsServer
from services.runtime.plan_desk import PLAN_BYTES, PlanDesk
from services.runtime.plan_intake import BODIES_AT_ONCE
from services.runtime.plan_signature import SIGNATURE_HEADER, sign
from tests.models.example_plan import EXAMPLE_TEXT, THREE_REGIONS

KEY = "a key of many letters"
SIGNED = f"{SIGNATURE_HEADER}: {sign(KEY, Phase.SETTLE, b'another body')}"
"""By who has the key; what comes then is another body."""
FORGED = f"{SIGNATURE_HEADER}: {sign('a key of as many letters', Phase.SETTLE, b'a body')}"
CONTINUE = b"HTTP/1.1 100 Continue\r\n"
"""What a client that waits for it is told once its body is being read."""


class Willing:
    """Takes every plan."""

    def check_plan(self, plan: Plan) -> None:
        pass

    async def apply_plan(self, plan: Plan) -> None:
        pass

    async def settle_plan(self) -> None:
        pass


@dataclass
class Client:
    """Sends a head, and then only what it is told to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def line(self) -> bytes:
        """The status line of what comes first; in vain when the body is waited for."""
        async with asyncio.timeout(5):
            return await self.reader.readline()

    async def rest(self) -> bytes:
        async with asyncio.timeout(5):
            return await self.reader.readuntil(b"}")


@dataclass
class Listener:
    desk: PlanDesk
    registry: CollectorRegistry
    port: int

    async def put(self, phase: str, *lines: str, size: int = PLAN_BYTES) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = [f"PUT /plan/{phase} HTTP/1.1", "host: a", f"content-length: {size}", "expect: 100-continue"]
        writer.write("\r\n".join([*head, *lines, "", ""]).encode())
        return Client(reader, writer)

    def outcomes(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("kvcompass_plan_applies_total", {"outcome": outcome})


@asynccontextmanager
async def listening(folder: Path, *, key: str = KEY) -> AsyncIterator[Listener]:
    path, registry = folder / "plan.toml", CollectorRegistry()
    path.write_text(EXAMPLE_TEXT, "utf-8")
    desk = PlanDesk(Component.UNIT, ["unit-0"], THREE_REGIONS, path, key=key, component=Willing())
    ops = OpsServer("127.0.0.1:0", lambda: Health(True, "well"), registry, plan=desk)
    await ops.start()
    try:
        yield Listener(desk, registry, ops.port)
    finally:
        await ops.stop()


@pytest.mark.parametrize(
    ("key", "phase", "lines", "size", "status"),
    [
        ("", "settle", [SIGNED], PLAN_BYTES, 404),
        ("", "settle", [], PLAN_BYTES, 404),
        (KEY, "nothing", [SIGNED], PLAN_BYTES, 404),
        (KEY, "settle", [], PLAN_BYTES, 401),
        (KEY, "settle", [f"{SIGNATURE_HEADER}: "], PLAN_BYTES, 401),
        (KEY, "settle", [FORGED], PLAN_BYTES, 401),
        (KEY, "prepare", [SIGNED], PLAN_BYTES, 401),
        (KEY, "settle", [SIGNED], PLAN_BYTES + 1, 413),
    ],
)
async def test_what_the_head_alone_condemns_is_not_read(tmp_path, key, phase, lines, size, status):
    async with listening(tmp_path, key=key) as listener:
        client = await listener.put(phase, *lines, size=size)
        assert (await client.line()).startswith(b"HTTP/1.1 %d " % status)
        client.writer.close()
        assert listener.outcomes("unsigned") == (status == 401)


async def test_two_are_read_at_a_time_and_the_next_once_one_has_ended(tmp_path):
    async with listening(tmp_path) as listener:
        reading = [await listener.put("settle", SIGNED, size=3) for _ in range(BODIES_AT_ONCE)]
        for client in reading:
            assert await client.line() == CONTINUE
        for count in (1, 2):
            turned_away = await listener.put("settle", SIGNED)
            assert (await turned_away.line()).startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in await turned_away.rest()
            turned_away.writer.close()
            assert listener.outcomes("busy") == count
        reading[0].writer.write(b"abc")
        assert b"401" in await reading[0].rest()
        after = await listener.put("settle", SIGNED)
        assert await after.line() == CONTINUE
        for client in (*reading, after):
            client.writer.close()  # who leaves in the middle makes room too
        async with asyncio.timeout(5):
            while (
                again := await (client := await listener.put("settle", SIGNED, size=3)).line()
            ) != CONTINUE:
                assert b" 503 " in again
                client.writer.close()
        client.writer.close()


async def test_the_command_tries_again_where_others_are_read(tmp_path):
    plan = dump_plan(replace(THREE_REGIONS, plan_version=2)).encode()
    async with listening(tmp_path) as listener:
        reading = [await listener.put("settle", SIGNED) for _ in range(BODIES_AT_ONCE)]
        for client in reading:
            assert await client.line() == CONTINUE
        target = Target(Component.UNIT, ("unit-0",), f"127.0.0.1:{listener.port}")
        visit = asyncio.create_task(
            asyncio.to_thread(Courier(plan, KEY, 20).visit, target, Phase.SETTLE, patient=True)
        )
        async with asyncio.timeout(5):
            while not listener.outcomes("busy"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for client in reading:
            client.writer.close()
        answer = await visit
        assert (answer.problem, answer.outcome, listener.desk.plan.plan_version) == ("", "applied", 2)
