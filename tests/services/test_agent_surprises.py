"""Every surprise has a name, under which metrics and health show it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent.event_decoder import EventDecoder
from services.worker_agent.metrics import AgentCollector
from services.worker_agent.served_worker import ServedWorker
from services.worker_agent.surprises import CORRECTED, IGNORED, seen
from tests.models.agent_fleets import agent_plan

EXPECTED = {"stored_blocks", "removed_blocks", "clears"}
"""Counters of what is no surprise."""


def served() -> ServedWorker:
    """As much of a worker as counts surprises."""
    agent = WorkerAgent(agent_plan(), "us-0", epoch=1)
    return cast(ServedWorker, SimpleNamespace(agent=agent, follower=SimpleNamespace(decoder=EventDecoder())))


def counters(worker: ServedWorker) -> list[tuple[Any, str]]:
    """Where a worker counts, and what."""
    holdings = worker.agent.holdings
    return [
        (where, name)
        for where in (worker.follower.decoder.counters, holdings.events, holdings.tree)
        for name in where.__slots__
        if name not in EXPECTED
    ]


def test_every_counter_is_shown_under_one_name() -> None:
    worker = served()
    assert seen(worker) == {}
    names = set()
    for where, name in counters(worker):
        before = seen(worker)
        setattr(where, name, getattr(where, name) + 7)
        changed = {key for key, count in seen(worker).items() if count != before.get(key, 0)}
        assert len(changed) == 1, name
        names |= changed
    assert names == {*IGNORED, *CORRECTED}


@pytest.mark.parametrize(
    ("method", "names"), [("ignored", IGNORED), ("corrected", CORRECTED)], ids=["ignored", "corrected"]
)
def test_metrics_have_them_all_from_the_start(method: str, names: dict[str, Any]) -> None:
    collector = AgentCollector([served()])
    family = collector._surprises(method, "", names)
    assert [(sample.labels["reason"], sample.value) for sample in family.samples] == [
        (name, 0) for name in names
    ]
