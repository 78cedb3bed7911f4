"""A worker's agent on the clock, driven as `services.worker_agent.served_worker` drives it."""

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

from kvcompass.engine_events import EngineEvent
from kvcompass.roles.engine_feed import Order
from kvcompass.roles.messages import AgentLoad
from kvcompass.roles.worker_agent import WorkerAgent
from simulator.engine_report import engine_load
from simulator.product import sizes
from simulator.product.periods import LOAD_JITTER, LOAD_PERIOD_US
from simulator.product.report_stream import ReportStream
from simulator.router import Site


class LoadListener(Protocol):
    """An edge of the region."""

    def on_worker_load(self, message: AgentLoad) -> None:
        """A worker's load has come."""


class AgentNode:
    """Owns an agent. Stands beside its engine: what that says is heard at once, in order and whole."""

    def __init__(
        self,
        site: Site,
        agent: WorkerAgent,
        worker: int,
        streams: Sequence[ReportStream],
        edges: Sequence[LoadListener],
        stream: Random,
    ) -> None:
        """`streams` by shard; `edges` of the worker's region; `stream` gives the jitter of the polls."""
        self.agent: Final = agent
        self.streams: Final = streams
        self._site = site
        self._worker = worker
        self._edges = edges
        self._stream = stream
        self._batches = 0
        self._loads_sent = 0

    def start(self) -> None:
        """Attach to the engine, register with the units and tell the first load, all at once."""
        site, agent = self._site, self.agent
        agent.on_engine_up(agent.epoch, same_process=False)
        agent.on_engine_load(engine_load(site.load(self._worker).value), site.now_us)
        agent.on_attached(replayed=True)
        for stream in self.streams:
            stream.start()
        for edge in self._edges:
            edge.on_worker_load(self._message())
        site.after(round(LOAD_PERIOD_US * self._stream.random()), self._poll)

    def cache_events(self, events: Sequence[EngineEvent]) -> None:
        """The engine published its next batch."""
        agent, number = self.agent, self._batches
        self._batches += 1
        order = agent.order(number)
        assert order is Order.NEXT, "events come in order"
        for edits in agent.on_batch(number, events):
            stream = self.streams[edits.shard]
            stream.report.on_edits(edits)
            stream.wake()

    def _poll(self) -> None:
        site = self._site
        self.agent.on_engine_load(engine_load(site.load(self._worker).value), site.now_us)
        for edge in self._edges:
            message = self._message()
            site.send_reliably(site.here, edge.on_worker_load, sizes.agent_load(message.load), (message,))
        period_us = LOAD_PERIOD_US * self._stream.uniform(1 - LOAD_JITTER, 1 + LOAD_JITTER)
        site.after(round(period_us), self._poll)

    def _message(self) -> AgentLoad:
        load = self.agent.load(self._site.now_us)
        assert load is not None, "the engine was asked"
        self._loads_sent += 1
        return AgentLoad(None, self.agent.epoch, self._loads_sent, load)
