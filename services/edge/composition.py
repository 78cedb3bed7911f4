"""What an edge is made of, and its life from start to drained."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry

from kvcompass.index import IndexView, LookupUnit, WorkerMap, index_shape
from kvcompass.levels.query_plan import query_plan
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Edge, Plan
from kvcompass.plan.rollout import Component
from kvcompass.roles.courses import Courses
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.warm import warm
from services.edge.fleet.index_feed import IndexFeed
from services.edge.fleet.load_broadcaster import LoadBroadcaster
from services.edge.fleet.load_service import LoadService
from services.edge.fleet.prefill_desk import PrefillDesk
from services.edge.fleet.prompt_service import PromptService
from services.edge.fleet.view_service import ViewService
from services.edge.forwarding.attempt_loop import AttemptLoop
from services.edge.forwarding.forward import Forwarder
from services.edge.forwarding.hops import Hops
from services.edge.forwarding.upstream import Upstream
from services.edge.gauges import EdgeGauges
from services.edge.listeners.control import control_app
from services.edge.listeners.dispatch import Dispatcher
from services.edge.listeners.explain import Explainer
from services.edge.listeners.gateway import Gateway
from services.edge.listeners.peer import PeerListener
from services.edge.listeners.public import PublicListener
from services.edge.metric_series import foresee
from services.edge.metrics import EdgeMetrics
from services.edge.plan_switch import EdgePlanSwitch
from services.edge.readiness import Readiness
from services.edge.relay_gauges import RelayGauges, fed_by
from services.edge.requests.callers import Callers
from services.edge.requests.prompts import PromptReader
from services.edge.settings import EdgeSettings, relay_bounds
from services.edge.state_log import StateLog
from services.prompt import PromptEncoder
from services.runtime.certificates import certificate_ends
from services.runtime.daemon_thread import in_daemon_thread
from services.runtime.epoch import new_epoch, now_us
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.http_bounds import DEFAULT_BOUNDS, HttpBounds
from services.runtime.http_server import HttpServer
from services.runtime.lifecycle import Lifecycle
from services.runtime.logs import get_logger
from services.runtime.ops import Health, OpsServer
from services.runtime.plain_text import check_plain_text, transport_mode
from services.runtime.plan_desk import PlanDesk
from services.runtime.settings import SettingsError
from services.runtime.tls import server_context
from services.runtime.version import VERSION
from services.wire.rpc import register_load_exchange, register_prompts, register_view_subscriptions


class EdgeService:
    """All parts of one edge in one loop. Made inside a running loop; nothing is bound before `start`."""

    def __init__(self, settings: EdgeSettings, plan: Plan, plan_path: Path) -> None:
        self._settings = settings
        self._desk = PlanDesk(Component.EDGE, [settings.id], plan, plan_path, key=settings.plan_key)
        self.place = _own_edge(plan, settings.id)
        self.registry = CollectorRegistry()
        self._log = get_logger("edge")
        region = self.place.region
        limits, timeouts = settings.limits, settings.timeouts
        callers = Callers(settings, plan)
        peer_listen = settings.peer_listen or self.place.peer_address
        check_plain_text(peer_listen, settings.tls, insecure=settings.insecure)

        encoder = PromptEncoder.load(plan.model.tokenizer, plan.model.chat_template, plan_path.parent)
        layout = layout_fields(plan, encoder.digest)
        epoch = new_epoch()
        self._handshake = handshake = Handshake(
            settings.id, epoch, PROTOCOL_VERSION, plan.plan_version, layout
        )
        self._dialer = Dialer(settings.connect_via, settings.tls, insecure=settings.insecure)
        remote = [edge.grpc_address for edge in plan.edges if edge.region != region]
        self._choices = tuple(
            UpstreamChoice(plan, settings.id, shard, bootstrap=settings.bootstrap, upstream=settings.upstream)
            for shard in range(plan.shards)
        )
        near = [source.address for source in self._choices[0].edges]
        for address in (*(unit.address for unit in plan.units), *remote, *near):
            self._dialer.component(address)  # dialled later, in the background: refused now

        queries = query_plan(plan)
        view = IndexView(index_shape(plan))
        lookup = LookupUnit(view, queries, WorkerMap.of_plan(plan), plan.region_index(region))
        self.role = EdgeRole(plan, settings.id, lookup, epoch=epoch, policy=settings.policy)
        self.followers = tuple(IndexFollower(shard, view, handshake) for shard in range(plan.shards))
        self.relays = tuple(
            ViewRelay(
                follower,
                view,
                edge_id=settings.id,
                layout=layout,
                plan_version=plan.plan_version,
                neighbours=[edge.id for edge in plan.edges if edge.region == region],
                bounds=relay_bounds(settings, plan.shards),
            )
            for follower in self.followers
        )
        self._views = ViewService(self.relays, now_us)
        self.readiness = Readiness(self.followers, now_us)
        self.metrics = EdgeMetrics(self.registry)
        foresee(self.metrics, plan, region)
        self._broadcaster = LoadBroadcaster(plan, region, self.role, handshake, self._dialer, self.metrics)

        self._workers = Upstream.to_workers(timeouts, limits.concurrent_requests * 2)
        self._peers = Upstream.to_peers(timeouts, limits.concurrent_requests, settings.tls)
        hops = Hops(
            plan,
            self._dialer,
            self._workers,
            self._peers,
            region,
            peer_key=settings.peer_key,
            engine_key=settings.engine_key,
        )
        loop = AttemptLoop(hops, Forwarder(limits, timeouts), self.metrics)
        courses = Courses(plan, self.role, attempts=limits.attempts, avoid_us=round(timeouts.suspect_s * 1e6))
        reader = PromptReader(encoder, plan, queries.rungs)
        dispatcher = Dispatcher(courses, loop, self.metrics)
        model = plan.model.id
        self.gateway = Gateway(settings, model, callers, self.readiness, reader, dispatcher, self.metrics)
        explainer = Explainer(limits, timeouts.body_s, model, queries, self.role, reader, self.readiness)
        control = control_app(model, callers, self.readiness, explainer, self.state)
        self.peer = PeerListener(settings, plan, courses, loop, self.metrics)
        self.prefills = PrefillDesk(self.metrics)
        self._loads = LoadService(plan, layout, self.role, self.metrics, self.prefills)
        self._prompts = PromptService(plan, layout, encoder)
        self.registry.register(
            EdgeGauges(self.role, self.followers, self.readiness, lambda: self.gateway.in_progress, now_us)
        )
        self._desk.component = EdgePlanSwitch(
            edge_id=settings.id,
            role=self.role,
            courses=courses,
            view=view,
            relays=self.relays,
            choices=self._choices,
            readiness=self.readiness,
            reader=reader,
            explainer=explainer,
            hops=hops,
            peer=self.peer,
            loads=self._loads,
            prompts=self._prompts,
            broadcaster=self._broadcaster,
            dialer=self._dialer,
            foresee=lambda plan: foresee(self.metrics, plan, region),
        )

        self.registry.register(RelayGauges(self.relays, self._choices))

        tls = server_context(settings.tls) if settings.tls is not None else None
        public = PublicListener(self.gateway, control, limits)
        # What an edge refuses itself, and words better, comes first.
        bounds = HttpBounds(
            head_bytes=max(DEFAULT_BOUNDS.head_bytes, 2 * limits.header_bytes),
            connections=max(DEFAULT_BOUNDS.connections, 2 * limits.concurrent_requests),
        )
        self.public_server = HttpServer(public, settings.listen or self.place.address, bounds=bounds)
        self.peer_server = HttpServer(self.peer, peer_listen, tls=tls)
        self.ops = OpsServer(
            settings.ops_address,
            self.health,
            self.registry,
            {"public": self.public_server, "peer": self.peer_server},
            plan=self._desk,
            certificate_ends=certificate_ends(settings.tls),
        )

    def state(self) -> dict[str, Any]:
        """What `/v1/kvcompass/state` shows."""
        return {
            **self.role.state(now_us()),
            "fleet": self._desk.plan.fleet,
            "plan_version": self._desk.plan.plan_version,
            "readiness": self.readiness.public(),
            "shards": [
                {**shard, **fed_by(relay, choice)}
                for shard, relay, choice in zip(
                    self.readiness.shards(), self.relays, self._choices, strict=True
                )
            ],
            "requests_in_progress": self.gateway.in_progress,
            "peer_requests_in_progress": self.peer.in_progress,
        }

    def health(self) -> Health:
        """What operators are told: whether it is ready, and all of the state."""
        return replace(self.readiness.health(), details=self.state())

    async def run(self, lifecycle: Lifecycle) -> None:
        """Serves until the lifecycle stops, then drains. Errors: SettingsError."""
        settings = self._settings
        async with AsyncExitStack() as ending:
            for stop in (self.ops.stop, self._peers.close, self._workers.close):
                ending.push_async_callback(stop)
            grpc_server, _ = await serve_grpc(
                self._register,
                settings.grpc_listen or self.place.grpc_address,
                settings.tls,
                insecure=settings.insecure,
                setting="grpc_listen",
            )
            ending.push_async_callback(grpc_server.stop, grace=0.5)
            await self.ops.start()
            await self.peer_server.start()
            await self.public_server.start()
            lifecycle.background(self._follow_fleet(), "fleet")
            self._log.info("serving", **self._mode())
            lifecycle.background(StateLog(self.readiness).run(), "state log")
            await lifecycle.stopping.wait()
            await self._drain()

    async def _follow_fleet(self) -> None:
        """Compiles the kernels, then follows shards and peers for ever.

        In this order: a snapshot that came while the kernels are being compiled would hold up the loop until
        they are.
        """
        plan = self._desk.plan
        await in_daemon_thread(partial(warm, plan.index.layout, plan.index.value_bits), "warm")
        self.readiness.warm = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._broadcaster.run(), name="broadcaster")
            group.create_task(self._views.copy(), name="views")
            for shard, (relay, choice) in enumerate(zip(self.relays, self._choices, strict=True)):
                # Edges with the same settings do not come back all at once.
                jitter = random.Random(f"{self._settings.random_seed} {self.place.id} {shard}")  # noqa: S311
                feed = ShardFeed(relay, choice, jitter)
                carried = IndexFeed(feed, self._dialer, partial(self._views.changed, shard))
                group.create_task(carried.run(), name=f"shard {shard}")

    def _register(self, server: grpc.aio.Server) -> None:
        register_load_exchange(server, self._loads)
        register_prompts(server, self._prompts)
        register_view_subscriptions(server, self._views)

    def _mode(self) -> Mapping[str, Any]:
        """The effective mode, for the first line of the log."""
        return {
            "version": VERSION,
            "region": self.place.region,
            "policy": self._settings.policy,
            "bootstrap": self._settings.bootstrap,
            "upstream": self._settings.upstream,
            "lab_mode": self._settings.lab_mode,
            "transport": transport_mode(self._settings),
            "plan_version": self._desk.plan.plan_version,
            "public_port": self.public_server.port,
            "peer_port": self.peer_server.port,
            "ops_port": self.ops.port,
        }

    async def _drain(self) -> None:
        timeouts = self._settings.timeouts
        self.readiness.draining = True
        self._log.info("draining", in_progress=self.gateway.in_progress)
        await asyncio.sleep(timeouts.unready_s)
        await asyncio.gather(
            self.public_server.stop(timeouts.drain_s), self.peer_server.stop(timeouts.drain_s)
        )


def _own_edge(plan: Plan, edge_id: str) -> Edge:
    for edge in plan.edges:
        if edge.id == edge_id:
            return edge
    known = ", ".join(edge.id for edge in plan.edges)
    raise SettingsError(f"the plan has no edge {edge_id!r}; it has {known}", field="id")
