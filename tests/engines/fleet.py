"""The fleet around the engine under test: its agent, a unit, an edge in each of two regions, and a spare.

The engine is in `us`. The spare, a double in `eu`, keeps edges with somewhere to send requests while the
engine is down; it is so slow that it gets none otherwise. There is one shard: what its log says later
is seen later, so that a prompt which an edge has come to know proves that all before it was taken in.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kvcompass.levels import registered_lengths
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
from lab.blueprint import Blueprint, Stage
from lab.fleet import Fleet
from lab.ports import LoopbackPorts
from lab.process import ProcessSpec
from lab.toml import Value, dump_toml
from tests.engines.engine import CONTEXT_TOKENS, MODEL, PAGE_TOKENS, Engine, MakeEngine, Place
from tests.models.ports import lab_ports

REGIONS = ("us", "eu")
WORKER = "worker-us"
SPARE = "worker-eu"
_WAN_MS = 0.5
"""One way, on paper: no registered length is too short to be worth the way."""
_PREFILL_MS = 0.1
_SPARE_PREFILL_MS = 10.0
"""A token, on paper and in fact."""


class EngineFleet:
    """Processes that run around one engine. `replace` puts another one in its place."""

    def __init__(self, engine: Engine, place: Place, processes: Fleet) -> None:
        self.engine = engine
        self.place = place
        self.processes = processes
        self.guard, *self.lengths = registered_lengths(self.plan).tolist()
        """The first registered length, which is read and never claimed (docs/decisions/0202), and the others,
        ascending."""

    @property
    def plan(self) -> Plan:
        return self.processes.blueprint.plan

    @property
    def base_urls(self) -> Mapping[str, str]:
        return self.processes.base_urls

    @property
    def agent_health(self) -> str:
        """URL of what the engine's agent says of itself."""
        return f"http://{self.processes.blueprint.ops_addresses[_agent_of(WORKER)]}/health"

    def kill_agent(self) -> None:
        """Ends the engine's agent at once, with nothing said."""
        self.processes.process(_agent_of(WORKER)).kill()

    def start_agent(self) -> None:
        """Starts it again; it is ready once the engine is attached to and the streams stand."""
        self.processes.restart(_agent_of(WORKER))

    def replace(self, make: MakeEngine) -> None:
        """Starts another engine where the killed one was."""
        self.engine = make(self.place)
        self.engine.start()


@contextmanager
def running_fleet(make: MakeEngine) -> Iterator[EngineFleet]:
    """Starts all of it; nothing of it is left afterwards. Errors: LabError."""
    directory = Path(tempfile.mkdtemp(prefix="kvcompass-engine-"))
    ports = lab_ports()
    place = Place(ports.address(), ports.address(), ports.address(), directory)
    engine = make(place)
    fleet: EngineFleet | None = None
    try:
        engine.start()
        with Fleet(_blueprint(place, engine.kind, ports)) as processes:
            fleet = EngineFleet(engine, place, processes)
            yield fleet
    finally:
        engine.kill()
        if fleet is not None:
            fleet.engine.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _agent_of(worker: str) -> str:
    return worker.replace("worker", "agent")


def _blueprint(place: Place, kind: str, ports: LoopbackPorts) -> Blueprint:
    names = ("unit", *(f"edge-{region}" for region in REGIONS), _agent_of(WORKER), _agent_of(SPARE))
    ops = {name: ports.address() for name in names}
    plan = _plan(place, ports)
    (spare,) = (worker for worker in plan.workers if worker.id == SPARE)
    return Blueprint(
        plan=plan,
        plan_text=dump_plan(plan),
        policy="kvcompass",
        stages=(
            Stage("a unit and the spare", (_process("unit", "maintenance", ops, id="unit"), _double(spare))),
            Stage(
                "agents and edges",
                (
                    _agent(WORKER, kind, ops),
                    _agent(SPARE, "sglang", ops),
                    *(
                        _process(
                            edge.id,
                            "edge",
                            ops,
                            id=edge.id,
                            lab_mode=True,
                            peer_key="the-key-of-this-test",
                            timeouts={"drain_s": 1.0, "unready_s": 0.0},
                        )
                        for edge in plan.edges
                    ),
                ),
            ),
        ),
        time_scale=1.0,
        relay_control="",
        ops_addresses=ops,
    )


def _plan(place: Place, ports: LoopbackPorts) -> Plan:
    return Plan(
        fleet="engine-under-test",
        plan_version=1,
        model=ModelIdentity(
            id=MODEL,
            tokenizer="builtin:kvcompass-bpe",
            chat_template="builtin:kvcompass-chat",
            block_size=PAGE_TOKENS,
            context_length=CONTEXT_TOKENS,
        ),
        lengths=LengthRule(),
        index=IndexRule(expected_entries=4_096),
        routing=RoutingRule(),
        regions=REGIONS,
        wan_ms=((_WAN_MS, _WAN_MS), (_WAN_MS, _WAN_MS)),
        edges=tuple(
            Edge(f"edge-{region}", region, ports.address(), ports.address(), ports.address())
            for region in REGIONS
        ),
        units=(MaintenanceUnit("unit", 0, "us", ports.address()),),
        workers=(
            _worker(WORKER, 0, _PREFILL_MS, place.address, place.events, place.replay),
            _worker(SPARE, 1, _SPARE_PREFILL_MS, ports.address(), ports.address(), ports.address()),
        ),
        sharing_groups=(SharingGroup("default"),),
    )


def _worker(
    name: str, table: int, prefill_ms_per_token: float, address: str, events: str, replay: str
) -> Worker:
    return Worker(
        id=name,
        region=REGIONS[table],
        url=f"http://{address}",
        events=f"tcp://{events}",
        replay=f"tcp://{replay}",
        table=table,
        slot=0,
        prefill_ms_per_token=prefill_ms_per_token,
        reload_ms_per_token=0.01,
    )


def _double(worker: Worker) -> ProcessSpec:
    address = worker.url.removeprefix("http://")
    settings: dict[str, Value] = {
        "address": address,
        "model": MODEL,
        "context_length": CONTEXT_TOKENS,
        "page_size": PAGE_TOKENS,
        "timing": {"prefill_ms_per_token": _SPARE_PREFILL_MS},
        "event_endpoint": worker.events,
        "replay_endpoint": worker.replay,
    }
    return ProcessSpec("spare", "services.mock_sglang", dump_toml(settings), address, ready_path="/v1/models")


def _agent(worker: str, kind: str, ops: Mapping[str, str]) -> ProcessSpec:
    return _process(_agent_of(worker), "worker_agent", ops, workers=[worker], engine={"kind": kind})


def _process(name: str, role: str, ops: Mapping[str, str], **settings: Value) -> ProcessSpec:
    common: dict[str, Value] = {"plan": "plan.toml", "ops_address": ops[name]}
    return ProcessSpec(name, f"services.{role}", dump_toml(common | settings), ops[name])
