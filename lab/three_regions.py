"""The lab's fleet: us, eu and asia, one edge and two workers each, maintenance units in us and eu.

What lies between the regions is a WAN profile; `paper-testbed` unless another is chosen. Rates are those of
an A100 with a 32B model: four times the calibrated ones of an 8B model (docs/decisions/0805).
Every address dialled from another region is reached through the relay.
"""

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvcompass.engine_model import EngineTiming
from kvcompass.plan.dump import dump_plan
from kvcompass.plan.model import (
    Edge,
    IndexRule,
    LengthRule,
    MaintenanceUnit,
    ModelIdentity,
    Plan,
    RoutingRule,
    SharingGroup,
    Worker,
)
from kvcompass.routing.names import PolicyName
from kvcompass.wan import Link, WanError, WanProfile
from lab.blueprint import Blueprint, Stage
from lab.ports import LoopbackPorts
from lab.process import ProcessSpec
from lab.toml import Value, dump_toml
from lab.wan_profiles import load_profile

MODEL = "lab-32b"
REGIONS = ("us", "eu", "asia")
_UNIT_REGIONS = ("us", "eu")
_INSIDE_REGION_MS = 0.5
_LEASE_TRIPS = 3
"""Longest round trips that a lease has room for, where a slow lab makes that more than the default."""
_SIZE_FACTOR = 4.0
"""Parameters of the lab's model over those of the calibrated one; time a token grows with them."""
_PREFILL_MS_PER_TOKEN = 0.073 * _SIZE_FACTOR
_KV_FACTOR = 2.0
"""Its bytes of KV a token over the calibrated ones; reading them and moving them grows so."""
_RELOAD_MS_PER_TOKEN = 0.00524 * _KV_FACTOR
_BLOCK_SIZE = 64
"""Divides the ladder's quantum of 128 and keeps the event stream short."""
_STREAM_INTERVAL = 4
"""Tokens a streamed chunk, the first token by itself: a dozen processes share a laptop."""


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What can be chosen about the lab's fleet."""

    policy: PolicyName = "kvcompass"
    time_scale: float = 1.0
    """Real ms for each model ms, of network and engines alike. Leases and load exchange stay in real time."""
    jitter_ms: float = 0.0
    """Model ms, standard deviation, on every wire for which the profile names none."""
    wan: WanProfile = field(default_factory=lambda: load_profile("paper-testbed"))
    """Has the regions `REGIONS`; in model ms."""
    workers_per_region: int = 2
    cache_tokens: int = 122_070
    """KV capacity of an engine: 32 GB at 262,144 bytes a token (64 layers, 8 KV heads of 128, BF16)."""
    agents_share_a_process: bool = True
    """One agent process a region instead of one a worker, for a quick start; fault tests want them apart."""
    random_seed: int = 1
    edge_settings: Mapping[str, Value] = field(default_factory=dict)
    """More settings for every edge."""
    unit_settings: Mapping[str, Value] = field(default_factory=dict)
    """More settings for every maintenance unit."""
    second_edges: tuple[str, ...] = ()
    """Regions with two edges, `edge-REGION` and `edge-REGION-2`."""
    second_edge_settings: Mapping[str, Value] = field(default_factory=dict)
    """Settings of those second ones that go before `edge_settings`."""


def three_regions(options: LabOptions, ports: LoopbackPorts) -> Blueprint:
    """Lays out the whole lab on free loopback ports. Raises: WanError when the profile has other regions."""
    if set(options.wan.regions) != set(REGIONS):
        raise WanError(f"the lab has the regions {', '.join(REGIONS)}; give those", field="regions")
    plan = _plan(options, ports)
    relay = _Relay(plan, options, ports)
    ops = {name: ports.address() for name in _names_with_ops(plan, options)}
    plan = _reached(plan, options, ops)
    control = ports.address()
    first = (
        ProcessSpec("relay", "lab.relay", dump_toml(relay.settings(control)), control),
        *(_engine(worker, options) for worker in plan.workers),
        *(_unit(unit, options, ops, relay) for unit in plan.units),
    )
    agents = tuple(_agent(name, workers, options, ops, relay) for name, workers in _agents(plan, options))
    edges = tuple(_edge(edge, options, ops, relay) for edge in plan.edges)
    return Blueprint(
        plan=plan,
        plan_text=dump_plan(plan),
        policy=options.policy,
        stages=(
            Stage("engines, maintenance units and the relay", first),
            Stage("worker agents and edges", agents + edges),
        ),
        time_scale=options.time_scale,
        relay_control=control,
        ops_addresses=ops,
        plan_key=_secret(options, "plan"),
    )


def _plan(options: LabOptions, ports: LoopbackPorts) -> Plan:
    scale = options.time_scale
    wan_ms = tuple(
        tuple(scale * _one_way_ms(options.wan, origin, destination) for destination in REGIONS)
        for origin in REGIONS
    )
    trips_ms = round(2 * _LEASE_TRIPS * max(map(max, wan_ms)))
    return Plan(
        fleet="lab",
        plan_version=1,
        model=ModelIdentity(
            id=MODEL,
            tokenizer="builtin:kvcompass-bpe",
            chat_template="builtin:kvcompass-chat",
            block_size=_BLOCK_SIZE,
            context_length=32_768,
        ),
        lengths=LengthRule(),
        index=IndexRule(expected_entries=8_192),
        routing=RoutingRule(queue_scale_ms=200.0 * scale, lease_ms=max(RoutingRule().lease_ms, trips_ms)),
        regions=REGIONS,
        wan_ms=wan_ms,
        edges=tuple(
            Edge(name, region, ports.address(), ports.address(), ports.address())
            for name, region in _edges(options)
        ),
        units=tuple(
            MaintenanceUnit(f"unit-{shard}", shard, region, ports.address())
            for shard, region in enumerate(_UNIT_REGIONS)
        ),
        workers=tuple(
            Worker(
                id=f"worker-{region}-{slot + 1}",
                region=region,
                url=f"http://{ports.address()}",
                events=f"tcp://{ports.address()}",
                replay=f"tcp://{ports.address()}",
                table=table,
                slot=slot,
                prefill_ms_per_token=scale * _PREFILL_MS_PER_TOKEN,
                reload_ms_per_token=scale * _RELOAD_MS_PER_TOKEN,
            )
            for table, region in enumerate(REGIONS)
            for slot in range(options.workers_per_region)
        ),
        sharing_groups=(SharingGroup("default"),),
    )


def _reached(plan: Plan, options: LabOptions, ops: Mapping[str, str]) -> Plan:
    """The plan with the operations address of every component."""
    agents = {worker.id: ops[name] for name, workers in _agents(plan, options) for worker in workers}
    return dataclasses.replace(
        plan,
        edges=tuple(dataclasses.replace(edge, ops_address=ops[edge.id]) for edge in plan.edges),
        units=tuple(dataclasses.replace(unit, ops_address=ops[unit.id]) for unit in plan.units),
        workers=tuple(dataclasses.replace(worker, ops_address=agents[worker.id]) for worker in plan.workers),
    )


def _secret(options: LabOptions, purpose: str) -> str:
    """Of the lab alone: on loopback, and told to whoever starts it."""
    drawn = random.Random(f"{options.random_seed} {purpose}").getrandbits(128)
    return f"lab-{drawn:032x}"


def _edges(options: LabOptions) -> Iterator[tuple[str, str]]:
    """Names of edges and their regions."""
    for region in REGIONS:
        yield f"edge-{region}", region
        if region in options.second_edges:
            yield f"edge-{region}-2", region


def _one_way_ms(wan: WanProfile, origin: str, destination: str) -> float:
    return _INSIDE_REGION_MS if origin == destination else wan.link(origin, destination).one_way_ms


class _Relay:
    """One listener for every (region that dials, address in another region)."""

    def __init__(self, plan: Plan, options: LabOptions, ports: LoopbackPorts) -> None:
        self._plan = plan
        self._options = options
        self._listeners = {
            (origin, target): (ports.address(), destination)
            for origin in plan.regions
            for target, destination in _dialled_across(plan)
            if destination != origin
        }

    def connect_via(self, region: str) -> dict[str, str]:
        """For a process of `region`: plan address -> the relay's listener."""
        return {
            target: listen for (origin, target), (listen, _) in self._listeners.items() if origin == region
        }

    def settings(self, control: str) -> dict[str, Value]:
        """Settings of the relay process."""
        return {
            "control_address": control,
            "random_seed": self._options.random_seed,
            "wires": [
                {"origin": origin, "destination": destination, **self._wire(link)}
                for (origin, destination), link in self._options.wan.links.items()
            ],
            "links": [
                {"listen": listen, "target": target, "origin": origin, "destination": destination}
                for (origin, target), (listen, destination) in self._listeners.items()
            ],
        }

    def _wire(self, link: Link) -> dict[str, Value]:
        """The link in real time: latencies shrink with the scale, and what passes in a second grows."""
        scale = self._options.time_scale
        wire: dict[str, Value] = {
            name: value for name, value in dataclasses.asdict(link).items() if value is not None
        }
        wire["one_way_ms"] = scale * link.one_way_ms
        wire["jitter_ms"] = scale * (link.jitter_ms or self._options.jitter_ms)
        if link.rate is not None:
            wire["rate"] = link.rate / scale
        return wire


def _dialled_across(plan: Plan) -> Iterator[tuple[str, str]]:
    """Addresses that other regions dial, and the region each is in."""
    for edge in plan.edges:
        yield edge.peer_address, edge.region
        yield edge.grpc_address, edge.region
    for unit in plan.units:
        yield unit.address, unit.region


def _agents(plan: Plan, options: LabOptions) -> Iterator[tuple[str, Sequence[Worker]]]:
    """Agent processes: their names and their workers, all of one region."""
    if not options.agents_share_a_process:
        for worker in plan.workers:
            yield f"agent-{worker.id.removeprefix('worker-')}", [worker]
        return
    for region in plan.regions:
        yield f"agent-{region}", [worker for worker in plan.workers if worker.region == region]


def _names_with_ops(plan: Plan, options: LabOptions) -> Iterator[str]:
    yield from (unit.id for unit in plan.units)
    yield from (edge.id for edge in plan.edges)
    yield from (name for name, _ in _agents(plan, options))


def _engine_timing() -> dict[str, Value]:
    calibrated = EngineTiming()
    return {
        "prefill_ms_per_token": _SIZE_FACTOR * calibrated.prefill_ms_per_token,
        "prefill_ms_per_token_squared": _SIZE_FACTOR * calibrated.prefill_ms_per_token_squared,
        "decode_ms": _SIZE_FACTOR * calibrated.decode_ms,
        "decode_ms_per_context_token": _KV_FACTOR * calibrated.decode_ms_per_context_token,
    }


def _engine(worker: Worker, options: LabOptions) -> ProcessSpec:
    address = worker.url.removeprefix("http://")
    settings: dict[str, Value] = {
        "address": address,
        "model": MODEL,
        "context_length": 32_768,
        "page_size": _BLOCK_SIZE,
        "cache_tokens": options.cache_tokens,
        "time_scale": options.time_scale,
        "stream_interval": _STREAM_INTERVAL,
        "timing": _engine_timing(),
        "event_endpoint": worker.events,
        "replay_endpoint": worker.replay,
    }
    return ProcessSpec(
        worker.id, "services.mock_sglang", dump_toml(settings), address, ready_path="/v1/models"
    )


def _unit(unit: MaintenanceUnit, options: LabOptions, ops: Mapping[str, str], relay: _Relay) -> ProcessSpec:
    settings: dict[str, Value] = {
        "plan": "plan.toml",
        "id": unit.id,
        "ops_address": ops[unit.id],
        "plan_key": _secret(options, "plan"),
        "connect_via": relay.connect_via(unit.region),
        **options.unit_settings,
    }
    return ProcessSpec(unit.id, "services.maintenance", dump_toml(settings), ops[unit.id])


def _agent(
    name: str, workers: Sequence[Worker], options: LabOptions, ops: Mapping[str, str], relay: _Relay
) -> ProcessSpec:
    settings: dict[str, Value] = {
        "plan": "plan.toml",
        "workers": [worker.id for worker in workers],
        "ops_address": ops[name],
        "plan_key": _secret(options, "plan"),
        "connect_via": relay.connect_via(workers[0].region),
    }
    return ProcessSpec(name, "services.worker_agent", dump_toml(settings), ops[name])


def _edge(edge: Edge, options: LabOptions, ops: Mapping[str, str], relay: _Relay) -> ProcessSpec:
    settings: dict[str, Value] = {
        "plan": "plan.toml",
        "id": edge.id,
        "ops_address": ops[edge.id],
        "policy": options.policy,
        "lab_mode": True,
        "peer_key": _secret(options, "peer"),
        "plan_key": _secret(options, "plan"),
        "random_seed": options.random_seed,
        "connect_via": relay.connect_via(edge.region),
        "timeouts": {"drain_s": 1.0, "unready_s": 0.0},
        **options.edge_settings,
        **(options.second_edge_settings if edge.id.endswith("-2") else {}),
    }
    return ProcessSpec(edge.id, "services.edge", dump_toml(settings), ops[edge.id])
