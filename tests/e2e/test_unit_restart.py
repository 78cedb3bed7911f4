"""A unit that is killed comes back with its own snapshot, while an edge goes on answering."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvcompass.plan.dump import dump_plan
from kvcompass.plan.layout import layout_fields
from kvcompass.roles.index_follower import FollowerState
from tests.models.ports import free_address
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import FollowingEdge, compile_kernels, connected, following, until
from tests.models.unit_snapshots import held, restored

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PLAN = replication_plan(lease_ms=60_000)
LAYOUT = layout_fields(PLAN)
START_S = 90.0
"""A process that compiles on a busy machine."""


class UnitProcess:
    def __init__(self, folder: Path) -> None:
        self.listen, self.ops = free_address(), free_address()
        self.file = folder / "unit-0.snapshot"
        self.log = folder / "log"
        self._settings = folder / "unit.toml"
        (folder / "plan.toml").write_text(dump_plan(PLAN), "utf-8")
        self._settings.write_text(
            f'plan = "plan.toml"\nid = "unit-0"\nlisten = "{self.listen}"\nops_address = "{self.ops}"\n'
            f'[snapshot]\npath = "{self.file.name}"\nperiod_s = 0.1\n',
            "utf-8",
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.maintenance", "--settings", str(self._settings),
                cwd=ROOT, stderr=log,
            )  # fmt: skip
        try:
            async with asyncio.timeout(START_S):
                while (await self.health())["state"] in ("", "compiling", "restoring"):
                    assert process.returncode is None, self.log.read_text()
                    await asyncio.sleep(0.05)
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def health(self) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=f"http://{self.ops}", timeout=5, trust_env=False) as operator:
            with suppress(httpx.TransportError):
                return dict((await operator.get("/health")).json())
        return {"state": ""}

    def restores(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]
        return [line for line in lines if line["event"].startswith("restored")]

    def kept(self) -> dict[str, dict[int, int]]:
        """What the next start will begin with."""
        return held(restored(self.file.read_bytes(), PLAN)) if self.file.exists() else {}


async def answering(edge: FollowingEdge) -> None:
    """An edge that has been loaded never says that nobody holds key 5."""
    while True:
        assert edge.tier(5) == 1
        await asyncio.sleep(0.002)


async def test_a_killed_unit_serves_its_table_again_and_agents_correct_the_differences(tmp_path):
    compile_kernels()
    unit = UnitProcess(tmp_path)
    agents = {worker: TwinAgent(worker, LAYOUT, holdings={5: 1, 6: 2}) for worker in WORKERS}
    async with AsyncExitStack() as stack:
        async with unit.running() as process:
            edge = await stack.enter_async_context(following(PLAN, unit.listen))
            async with AsyncExitStack() as streams:
                for agent in agents.values():
                    await streams.enter_async_context(connected(agent, unit.listen))
                await until(lambda: edge.state is FollowerState.EXACT)
                asking = asyncio.create_task(answering(edge))
                await until(lambda: unit.kept() == {each: agents[each].holdings for each in WORKERS})
                epoch = edge.follower.unit_epoch
                process.send_signal(signal.SIGKILL)
                assert await process.wait() == -signal.SIGKILL
        agents["a-1"].holdings = {5: 1, 7: 1}
        async with unit.running():
            assert len(unit.restores()) == 1
            health = await unit.health()
            assert {worker: each["keys"] for worker, each in health["details"]["holdings"].items()} == (
                dict.fromkeys(WORKERS, 2)
            )
            async with following(PLAN, unit.listen) as newcomer:
                await until(lambda: newcomer.state is FollowerState.EXACT)
                assert newcomer.tier(6, slot=1) == 2, "as it was; its agent is not back yet"
            asked = {}
            for worker, agent in agents.items():
                stub = await stack.enter_async_context(connected(agent, unit.listen))
                asked[worker] = stub.answers[0].full_report_wanted
            assert asked == {"a-0": False, "a-1": True, "b-0": False}
            await until(lambda: edge.follower.unit_epoch != epoch and edge.state is FollowerState.EXACT)
            await until(lambda: edge.tier(7, slot=1) == 1 and edge.tier(6, slot=1) == 0)
            assert not asking.done(), asking.exception()
            asking.cancel()
            assert stat_mode(unit.file) == 0o600
    assert FollowerState.ABSENT not in edge.states[1:]


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
