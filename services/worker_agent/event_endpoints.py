"""Where a worker's events come from: what the plan says goes before what its engine says."""

from collections.abc import Callable
from dataclasses import dataclass

from kvcompass.plan.values import listener
from kvcompass.roles.engine_fit import EngineRefusal, rank_endpoint
from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent.event_frames import rank_of
from services.worker_agent.event_source import EventSourceError, NoPublisherError


@dataclass(frozen=True, slots=True)
class EventEndpoints:
    """To connect to. `replay` is empty where past batches are not replayed."""

    events: str
    replay: str


def event_endpoints(agent: WorkerAgent, dial: Callable[[str], str]) -> EventEndpoints:
    """Find them by the plan and the facts last told. An engine publishes at the host of its URL.

    Errors: NoPublisherError when the engine says that there is nothing to connect to; EventSourceError when
    nobody says where.
    """
    worker, facts = agent.worker, agent.engine.facts
    if agent.engine.unconfigured:
        raise NoPublisherError(agent.engine.unconfigured, field="events")
    publisher = None if facts is None else facts.publisher
    told_events = told_replay = ""
    if publisher is not None:
        host, rank = listener(worker.url).rpartition(":")[0], worker.dp_rank or 0
        told_events = rank_endpoint(publisher, publisher.endpoint, host, rank)
        told_replay = rank_endpoint(publisher, publisher.replay_endpoint, host, rank)
    events, replay = worker.events or told_events, worker.replay or told_replay
    if not events:
        raise EventSourceError(
            "neither the plan nor the engine says where events are published: set the worker's events",
            field="events",
        )
    return EventEndpoints(dial(events), dial(replay) if replay else "")


def wrong_rank(payload: bytes, expected: int | None, endpoint: str) -> EngineRefusal | None:
    """Why a batch is another data-parallel rank's; None when it is not, or does not say."""
    rank = rank_of(payload)
    if expected is None or rank is None or rank == expected:
        return None
    return EngineRefusal(
        "dp_rank",
        f"the plan says {expected}, and {endpoint} has the events of rank {rank}: its port is the base port "
        "and the rank",
    )
