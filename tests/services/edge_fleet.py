"""Edges in this process, in front of engines that misbehave on request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import orjson
from aiohttp import web

import services.edge.composition as composition
from kvcompass.plan.model import Edge, MaintenanceUnit, Plan, RoutingRule
from services.edge.composition import EdgeService
from services.edge.settings import EdgeSettings, Limits, Timeouts
from services.runtime.lifecycle import Lifecycle
from tests.models.ports import free_address
from tests.models.routing_fleets import FakeLookup, make_plan

PEER_KEY = "peer-key-of-the-tests"
MODEL = "model"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello there"}]}

Behaviour = Callable[[web.Request, dict[str, Any]], Any]


@dataclass
class FakeEngine:
    """An engine that answers as told: `behave` maps a request to a response; None answers well."""

    name: str
    url: str = ""
    behave: Behaviour | None = None
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    cancelled: int = 0
    cached_tokens: int = 0
    runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._serve)
        app.router.add_post("/v1/completions", self._serve)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        host, port = self.runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        parsed = orjson.loads(body)
        try:
            if self.behave is not None:
                return await self.behave(request, parsed)
            return await self.good(request, parsed)
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled += 1
            raise

    def usage(self) -> dict[str, Any]:
        details = {"cached_tokens": self.cached_tokens}
        return {
            "prompt_tokens": 100,
            "completion_tokens": 2,
            "total_tokens": 102,
            "prompt_tokens_details": details,
        }

    def chunk(self, text: str) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": MODEL,
            "choices": [choice],
        }
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def usage_chunk(self) -> bytes:
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": []}
        return b"data: " + orjson.dumps({**chunk, "usage": self.usage()}) + b"\n\n"

    async def begin(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "x-kvcompass-worker": "forged"}
        )
        await response.prepare(request)
        return response

    async def good(self, request: web.Request, parsed: dict[str, Any]) -> web.StreamResponse:
        if not parsed.get("stream"):
            choice = {"index": 0, "finish_reason": "stop"}
            if "messages" in parsed:
                choice["message"] = {"role": "assistant", "content": f"from {self.name}"}
            else:
                choice["text"] = f"from {self.name}"
            answer = {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": MODEL,
                "choices": [choice],
            }
            return web.json_response({**answer, "usage": self.usage()})
        response = await self.begin(request)
        await response.write(self.chunk("from "))
        await response.write(self.chunk(self.name))
        if parsed.get("stream_options", {}).get("include_usage"):
            await response.write(self.usage_chunk())
        await response.write(b"data: [DONE]\n\n")
        return response


def status(code: int, **headers: str) -> Behaviour:
    async def behave(_request: web.Request, _parsed: dict[str, Any]) -> web.Response:
        body = {"object": "error", "message": f"engine says {code}", "code": code}
        return web.json_response(
            body, status=code, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return behave


async def dies(request: web.Request, _parsed: dict[str, Any]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(5)
    raise AssertionError


async def hangs(_request: web.Request, _parsed: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(30)
    raise AssertionError


@dataclass
class Fleet:
    plan: Plan
    edges: dict[str, EdgeService]
    engines: dict[str, FakeEngine]
    lookups: dict[str, FakeLookup]
    lifecycles: dict[str, Lifecycle]

    def base(self, edge: str = "us") -> str:
        return f"http://127.0.0.1:{self.edges[edge].public_server.port}"

    def peer(self, edge: str) -> str:
        return f"http://127.0.0.1:{self.edges[edge].peer_server.port}"

    @contextlib.asynccontextmanager
    async def client(self, edge: str = "us", **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(
            base_url=self.base(edge), timeout=60, trust_env=False, **options
        ) as client:
            yield client

    def holds(self, edge: str, worker: str, tokens: int) -> None:
        """What the edge's view says of every prompt."""
        self.lookups[edge].answer.match_tokens[self.plan.worker_index(worker)] = tokens
        self.lookups[edge].answer.tier[self.plan.worker_index(worker)] = 1

    def behave(self, workers: str, behaviour: Behaviour | None) -> None:
        for name, engine in self.engines.items():
            if name.startswith(workers):
                engine.behave = behaviour

    def served(self) -> dict[str, int]:
        return {name: len(engine.bodies) for name, engine in self.engines.items() if engine.bodies}

    def metric(self, edge: str, name: str, **labels: str) -> float:
        return self.edges[edge].registry.get_sample_value(f"kvcompass_edge_{name}", labels) or 0.0

    def counted(self, edge: str, name: str) -> dict[str, float]:
        """All series of a counter by one label: its value -> the count."""
        samples = [sample for family in self.edges[edge].registry.collect() for sample in family.samples]
        return {
            "".join(sample.labels.values()): sample.value
            for sample in samples
            if sample.name == f"kvcompass_edge_{name}"
        }

    def outcomes(self, edge: str = "us") -> dict[str, float]:
        """Outcome -> requests, over all routes."""
        counts: dict[str, float] = {}
        for family in self.edges[edge].registry.collect():
            for sample in family.samples:
                if sample.name == "kvcompass_edge_requests_total" and sample.value:
                    outcome = sample.labels["outcome"]
                    counts[outcome] = counts.get(outcome, 0) + sample.value
        return counts

    def at_rest(self) -> bool:
        """Nothing is in flight anywhere."""
        return all(
            not len(edge.role.fleet.in_flight) and not edge.gateway.in_progress and not edge.peer.in_progress
            for edge in self.edges.values()
        )


async def eventually(check: Callable[[], bool], seconds: float = 5.0) -> None:
    """Waits until `check` holds; fails when it does not within the bound."""
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def fleet(
    monkeypatch: Any,
    *,
    regions: tuple[str, ...] = ("us",),
    workers: int = 2,
    groups: tuple[str, ...] = ("default",),
    predicted: tuple[str, ...] = (),
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    **settings: Any,
) -> AsyncIterator[Fleet]:
    """Edges of `regions` run; the plan has three regions, engines run in the started ones.

    The holdings of the workers named in `predicted` are.
    """
    plan = make_plan(workers, groups=groups, routing=RoutingRule(broadcast_period_ms=20))
    engines = {worker.id: FakeEngine(worker.id) for worker in plan.workers if worker.region in regions}
    for engine in engines.values():
        await engine.start()
    edges = tuple(
        Edge(region, region, free_address(), free_address(), free_address()) for region in plan.regions
    )
    plan = replace(
        plan,
        edges=edges,
        units=(MaintenanceUnit("unit-0", 0, "us", free_address()),),
        workers=tuple(
            replace(
                worker,
                url=engines[worker.id].url if worker.id in engines else f"http://127.0.1.{i}:9",
                events=f"ipc:///nowhere/{worker.id}",
                holdings="predicted" if worker.id in predicted else "events",
            )
            for i, worker in enumerate(plan.workers)
        ),
    )
    lookups: list[FakeLookup] = []

    def fake_lookup(*_arguments: Any) -> FakeLookup:
        lookups.append(FakeLookup(len(plan.workers)))
        return lookups[-1]

    monkeypatch.setattr(composition, "LookupUnit", fake_lookup)
    monkeypatch.setattr(composition, "warm", lambda *_: None)
    defaults = {"lab_mode": True, "peer_key": PEER_KEY}
    lifecycles = {region: Lifecycle() for region in regions}
    services = {
        region: EdgeService(
            EdgeSettings(
                id=region,
                plan="",
                limits=limits or Limits(),
                timeouts=timeouts or Timeouts(unready_s=0, drain_s=1),
                **{**defaults, **settings},
            ),
            plan,
            Path(),
        )
        for region in regions
    }
    tasks = [asyncio.create_task(services[region].run(lifecycles[region])) for region in regions]
    try:
        for service, task in zip(services.values(), tasks, strict=True):
            await eventually(lambda service=service, task=task: service.readiness.warm or task.done())
            if task.done():
                task.result()
        yield Fleet(plan, services, engines, dict(zip(regions, lookups, strict=True)), lifecycles)
    finally:
        for lifecycle in lifecycles.values():
            lifecycle.stop()
        await asyncio.gather(*tasks)
        for lifecycle in lifecycles.values():
            await lifecycle.close()
        for engine in engines.values():
            await engine.stop()
