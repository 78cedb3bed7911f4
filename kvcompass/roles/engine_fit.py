"""What follows from the facts of an engine and the plan together: whether it can be served, and how well."""

from dataclasses import dataclass
from typing import Final

from kvcompass.engine_facts import EngineFacts, EventPublisher
from kvcompass.plan.model import Plan, Worker

EVENT_PORT: Final = 5_557
REPLAY_PORT: Final = 5_657
_SMALL_PAGE: Final = 16
"""Tokens. SGLang up to 0.5.10 sends one event a block, and an agent keeps 160 bytes of each."""


@dataclass(frozen=True, slots=True)
class EngineRefusal:
    """What in an engine contradicts the plan."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineFit:
    """What is known before the first event. Each message ends in a colon and what to change."""

    refusal: EngineRefusal | None = None
    """It cannot be served."""
    silence: str = ""
    """Why no events can come, with the flag that is missing; empty when they can."""
    notes: tuple[str, ...] = ()
    """It is served; what would make it better."""


def engine_fit(facts: EngineFacts, plan: Plan, worker: Worker) -> EngineFit:
    """Judge what an engine says of itself."""
    return EngineFit(
        _refusal(facts, plan, worker), _silence(facts, worker), tuple(_notes(facts, plan, worker))
    )


def pages_fit(page_size: int, plan: Plan) -> EngineRefusal | None:
    """Return why pages of a size cannot be served; None when they can.

    Pages need not be the plan's blocks. They fit when they divide the quantum, of which every registered
    length is a multiple: then the engine reuses what is claimed to the token (docs/decisions/0530).
    """
    quantum = plan.lengths.quantum
    if quantum % page_size == 0:
        return None
    return EngineRefusal(
        "block_size",
        f"it stores blocks of {page_size} tokens, which do not divide lengths.quantum = {quantum}: start it "
        f"with --page-size {plan.model.block_size}, or another divisor of {quantum}",
    )


def events_flag(engine: str, worker: Worker) -> str:
    """The argument that makes an engine publish what an agent needs, ready to paste."""
    first = '"enable_kv_cache_events":true,' if engine == "vllm" else ""
    events = _base_port(worker.events, EVENT_PORT, worker.dp_rank)
    replay = _base_port(worker.replay, REPLAY_PORT, worker.dp_rank)
    return (
        f"--kv-events-config '{{{first}"
        f'"publisher":"zmq","endpoint":"tcp://*:{events}",'
        f'"replay_endpoint":"tcp://*:{replay}","topic":"kv-events"}}\''
    )


def rank_endpoint(publisher: EventPublisher, endpoint: str, host: str, rank: int) -> str:
    """Where a rank's endpoint is reached from outside: the base's port and the rank, at the engine's host.

    Args:
        publisher: Of the engine.
        endpoint: One of its endpoints, or none.
        host: Of the engine's URL.
        rank: From 0 on.

    Returns:
        A ZMQ endpoint to connect to; empty when there is none. `ipc` has no ports, so only rank 0 has one.
    """
    if endpoint.startswith("ipc://"):
        return endpoint if rank == 0 else ""
    place, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not publisher.binds or not endpoint.startswith("tcp://") or not (port.isascii() and port.isdigit()):
        return ""
    number = int(port[:6]) + rank
    return f"tcp://{host}:{number}" if place and 0 < number <= 65_535 else ""


def _refusal(facts: EngineFacts, plan: Plan, worker: Worker) -> EngineRefusal | None:
    rank, ranks = worker.dp_rank, facts.dp_size
    if rank is None and ranks > 1:
        return EngineRefusal(
            "dp_rank",
            f"the engine has {ranks} data-parallel ranks, each with a cache of its own: plan a worker for "
            f"each, with dp_rank = 0 to {ranks - 1} and the same url",
        )
    if rank is not None and rank >= ranks:
        return EngineRefusal(
            "dp_rank",
            f"the plan says {rank}, and the engine has the ranks 0 to {ranks - 1}: see its --dp-size",
        )
    return pages_fit(facts.page_size, plan) if facts.page_size is not None else None


def _silence(facts: EngineFacts, worker: Worker) -> str:
    if facts.part == "decode":
        return "the decode half of a pair keeps no prefixes: plan the prefill half"
    if facts.prefix_cache is False:
        flag = "without --disable-radix-cache" if facts.engine == "sglang" else "with --enable-prefix-caching"
        return f"it keeps no prefixes: start it {flag}"
    if worker.events or not facts.tells_publisher:
        return ""
    if facts.publisher is None:
        return f"it publishes no events: start it with {events_flag(facts.engine, worker)}"
    if not facts.publisher.binds:
        return (
            f"it connects to {facts.publisher.endpoint} where it should listen: start it with "
            f"{events_flag(facts.engine, worker)}"
        )
    if not rank_endpoint(facts.publisher, facts.publisher.endpoint, "h", worker.dp_rank or 0):
        return f"its event endpoint {facts.publisher.endpoint} is none to connect to: set the worker's events"
    return ""


def _notes(facts: EngineFacts, plan: Plan, worker: Worker) -> list[str]:
    notes = []
    if worker.holdings == "predicted" and facts.publisher is not None:
        notes.append('it publishes events: holdings = "events" would be exact')
    if facts.page_size is not None and facts.page_size < min(_SMALL_PAGE, plan.model.block_size):
        notes.append(
            f"pages of {facts.page_size} tokens cost an event and memory each: start it with --page-size "
            f"{plan.model.block_size}"
        )
    publisher = facts.publisher if worker.holdings == "events" else None
    if publisher is not None and not publisher.replay_endpoint and not worker.replay:
        notes.append("what is lost of its events stays lost: add replay_endpoint to its --kv-events-config")
    if facts.host_tier and not facts.tells_tiers:
        notes.append(
            f"{facts.engine} {facts.version or 'of an unknown version'} does not tell what moves to its host "
            "tier, so that all that it holds counts as DRAM: SGLang 0.5.11 and later tell"
        )
    if facts.cache_report is False:
        notes.append("it does not tell what it reused: start it with --enable-cache-report")
    return notes


def _base_port(endpoint: str, default: int, rank: int | None) -> int:
    """Port of rank 0, where the plan gives one of this rank."""
    port = endpoint.rpartition(":")[2]
    return int(port) - (rank or 0) if endpoint.startswith("tcp://") and port.isdigit() else default
