"""Metrics of a worker agent: `kvcompass_worker_agent_*`, read from the agents when they are scraped."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.messages import PrefillOutcome
from kvcompass.self_test.state import SelfTestResult
from services.runtime.epoch import now_us
from services.worker_agent.load_sources.source import SourceKind
from services.worker_agent.served_worker import ServedWorker
from services.worker_agent.surprises import CORRECTED, IGNORED

_Read = Callable[[ServedWorker], float]

_GAUGES: Final[dict[str, tuple[str, _Read]]] = {
    "blocks": ("Resident blocks known.", lambda w: w.agent.holdings.blocks),
    "unregistered_keys": (
        "Prefixes held and not registered: more than index.worker_entries_max, the longest first.",
        lambda w: w.agent.holdings.unregistered,
    ),
    "registered_length_tokens": (
        "Longest length at which prefixes are registered.",
        lambda w: w.agent.holdings.registered_length,
    ),
    "detached_blocks": ("Blocks whose parent is not resident.", lambda w: w.agent.holdings.detached),
    "held_keys": (
        "Prefixes that units are told of.",
        lambda w: sum(w.agent.told.count(shard) for shard in w.reports),
    ),
    "event_lag_ms": (
        "For how long events have waited to be taken in.",
        lambda w: w.agent.lag.us(now_us()) / 1_000,
    ),
    "queue_ms": ("Estimated delay before a new request's prefill.", lambda w: _queue_ms(w)),
    "mean_uncached_tokens": ("Uncached tokens of a recent request.", lambda w: w.agent.mean_uncached_tokens),
}
_COUNTERS: Final[dict[str, tuple[str, _Read]]] = {
    "batches": ("Event batches taken in.", lambda w: w.agent.batches),
    "holes": ("Times that live batches were missing.", lambda w: w.agent.holes),
    "lost_batches": ("Batches that no replay brought back.", lambda w: w.agent.lost_batches),
    "broken_batches": ("Payloads that were no batch.", lambda w: w.follower.broken_batches),
    "replay_failures": ("Replays that were not answered.", lambda w: w.follower.replay_failures),
    "silences": (
        "Times that the engine served requests and sent no events.",
        lambda w: w.agent.engine.silences,
    ),
    "engine_restarts": ("Times that another engine process was found.", lambda w: w.agent.engine_restarts),
    "failures": ("Times that an unforeseen error made it begin anew.", lambda w: w.failures),
    "load_failures": ("Questions for the load that failed.", lambda w: w.load_failures),
    "load_choices": ("Times that the load was taken from another source.", lambda w: w.loads.choices),
    "malformed_loads": ("Published loads that could not be read.", lambda w: w.loads.malformed),
    "stored_blocks": ("Blocks told to be stored.", lambda w: w.agent.holdings.events.stored_blocks),
    "removed_blocks": ("Blocks told to be removed.", lambda w: w.agent.holdings.events.removed_blocks),
    "self_tests": ("Verdicts of the self-test.", lambda w: w.self_test.test.tests),
    "clears": ("Times that the cache was cleared.", lambda w: w.agent.holdings.events.clears),
}


class AgentCollector(Collector):
    """Exports every worker of a process. Costs nothing between scrapes."""

    def __init__(self, workers: Sequence[ServedWorker]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        for name, (what, read) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"kvcompass_worker_agent_{name}", what, labels=["worker"])
            for worker in self._workers:
                gauge.add_metric([worker.agent.worker.id], read(worker))
            yield gauge
        for name, (what, read) in _COUNTERS.items():
            counter = CounterMetricFamily(f"kvcompass_worker_agent_{name}", what, labels=["worker"])
            for worker in self._workers:
                counter.add_metric([worker.agent.worker.id], read(worker))
            yield counter
        yield self._states()
        yield self._self_tests()
        yield self._load_sources()
        yield from self._replicas()
        yield self._surprises("ignored", "Events and blocks left out, by reason.", IGNORED)
        yield self._surprises(
            "corrected", "Events with unknown fields, and what was put right by later ones.", CORRECTED
        )
        yield from self._reports()

    def _states(self) -> Metric:
        family = GaugeMetricFamily(
            "kvcompass_worker_agent_state", "1 for the state a worker is in.", labels=["worker", "state"]
        )
        for worker in self._workers:
            for state in AgentState:
                family.add_metric([worker.agent.worker.id, state.value], int(worker.agent.state is state))
        return family

    def _self_tests(self) -> Metric:
        family = GaugeMetricFamily(
            "kvcompass_worker_agent_self_test",
            "1 for the result of a worker's self-test.",
            labels=["worker", "result"],
        )
        for worker in self._workers:
            now = worker.self_test.test.state.result
            for result in SelfTestResult:
                family.add_metric([worker.agent.worker.id, result.value], int(now is result))
        return family

    def _load_sources(self) -> Metric:
        family = GaugeMetricFamily(
            "kvcompass_worker_agent_load_source",
            "1 for the source that a worker's load was last heard from.",
            labels=["worker", "source"],
        )
        for worker in self._workers:
            for kind in SourceKind:
                family.add_metric([worker.agent.worker.id, kind.value], int(worker.loads.kind is kind))
        return family

    def _replicas(self) -> Iterator[Metric]:
        prefills = CounterMetricFamily(
            "kvcompass_worker_agent_replica_prefills",
            "Prefills of replicas that ended, by how.",
            labels=["worker", "outcome"],
        )
        tokens = CounterMetricFamily(
            "kvcompass_worker_agent_replica_tokens",
            "Tokens of prefixes that the engine went through for replicas.",
            labels=["worker"],
        )
        waiting = GaugeMetricFamily(
            "kvcompass_worker_agent_replica_queue",
            "Prefills of replicas that wait or are under way.",
            labels=["worker"],
        )
        unsaid = CounterMetricFamily(
            "kvcompass_worker_agent_dropped_prefill_answers",
            "Outcomes that an edge took too late to be told.",
            labels=["worker"],
        )
        for worker in self._workers:
            name = worker.agent.worker.id
            unsaid.add_metric([name], sum(stream.dropped_answers for stream in worker.load_streams))
            if worker.replicas is None:
                continue
            role = worker.replicas.role
            for outcome in PrefillOutcome:
                prefills.add_metric([name, outcome.value], role.outcomes[outcome])
            tokens.add_metric([name], role.tokens)
            waiting.add_metric([name], role.queued + role.under_way)
        yield from (prefills, tokens, waiting, unsaid)

    def _surprises(self, name: str, what: str, counters: Mapping[str, _Read]) -> Metric:
        family = CounterMetricFamily(f"kvcompass_worker_agent_{name}", what, labels=["worker", "reason"])
        for worker in self._workers:
            for reason, read in counters.items():
                family.add_metric([worker.agent.worker.id, reason], read(worker))
        return family

    def _reports(self) -> Iterator[Metric]:
        labels = ["worker", "unit"]
        connected = GaugeMetricFamily(
            "kvcompass_worker_agent_unit_connected", "1 while a unit takes edits.", labels=labels
        )
        pending = GaugeMetricFamily(
            "kvcompass_worker_agent_pending_keys", "Keys whose edits wait to be sent.", labels=labels
        )
        reports = CounterMetricFamily(
            "kvcompass_worker_agent_full_reports", "Full reports sent.", labels=labels
        )
        overflows = CounterMetricFamily(
            "kvcompass_worker_agent_overflows", "Times that too many edits waited for a unit.", labels=labels
        )
        for worker in self._workers:
            for stream in worker.reports.values():
                values = [worker.agent.worker.id, stream.unit_id]
                connected.add_metric(values, int(not stream.problem))
                pending.add_metric(values, stream.report.queued)
                reports.add_metric(values, stream.report.full_reports)
                overflows.add_metric(values, stream.report.overflows)
        yield from (connected, pending, reports, overflows)


def _queue_ms(worker: ServedWorker) -> float:
    load = worker.agent.load(now_us())
    return load.queue_ms if load is not None else 0.0
