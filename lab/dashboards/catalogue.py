"""Every metric that exists, with its kind and labels, as the services themselves declare them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from prometheus_client.core import Metric

from lab.dashboards import specimens


class Job(StrEnum):
    """Scrape jobs of `deploy/compose/prometheus/prometheus.yml`."""

    EDGE = "edge"
    MAINTENANCE = "maintenance"
    WORKER_AGENT = "worker_agent"
    ENGINE = "engine"
    WAN = "wan"


TARGET_LABELS: Final[Mapping[Job, tuple[str, ...]]] = {
    job: ("job", "instance", "region", *(("worker",) if job is Job.ENGINE else ())) for job in Job
}
"""What a scrape adds to every series of a job. `region`: where the process stands."""


class Kind(StrEnum):
    """What may be asked of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    """As samples are called: a counter ends in `_total`; a histogram is without `_bucket`."""
    kind: Kind
    labels: frozenset[str]
    """Its own and those of its targets."""


@cache
def families() -> Mapping[str, Family]:
    """By name. The first call makes one of each service's metric objects: half a second."""
    declared = (
        *_declared(Job.EDGE, specimens.edge_metrics()),
        *_declared(Job.MAINTENANCE, specimens.unit_metrics()),
        *_declared(Job.WORKER_AGENT, specimens.agent_metrics()),
        *(_family(Job.ENGINE, name, Kind.GAUGE, ()) for name in ENGINE_GAUGES),
        *_declared(Job.WAN, specimens.wan_metrics()),
        *(_family(job, name, kind, ()) for job in SERVICES for name, kind in PROCESS_METRICS.items()),
        *(_family(job, "up", Kind.GAUGE, ()) for job in Job),
    )
    found: dict[str, Family] = {}
    for family in declared:
        known = found.get(family.name)
        # Of a metric that several jobs export, only the labels that all of them have may be used.
        labels = family.labels if known is None else family.labels & known.labels
        found[family.name] = Family(family.name, family.kind, labels)
    return found


SERVICES: Final = (Job.EDGE, Job.MAINTENANCE, Job.WORKER_AGENT)
PROCESS_METRICS: Final[Mapping[str, Kind]] = {
    "process_cpu_seconds_total": Kind.COUNTER,
    "process_resident_memory_bytes": Kind.GAUGE,
    "process_virtual_memory_bytes": Kind.GAUGE,
    "process_start_time_seconds": Kind.GAUGE,
    "process_open_fds": Kind.GAUGE,
    "process_max_fds": Kind.GAUGE,
}
"""What the Prometheus client reads of a process, on Linux alone."""
ENGINE_GAUGES: Final = ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage")
"""SGLang's names, which the engine double serves too."""


def _declared(job: Job, metrics: Iterable[Metric]) -> Iterator[Family]:
    for metric in metrics:
        yield _family(job, sample_name(metric), Kind(metric.type), own_labels(metric))


def _family(job: Job, name: str, kind: Kind, own: tuple[str, ...]) -> Family:
    return Family(name, kind, frozenset((*own, *TARGET_LABELS[job])))


def sample_name(metric: Metric) -> str:
    """As its samples are called; of a histogram, what `_bucket` is put behind."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def own_labels(metric: Metric) -> tuple[str, ...]:
    """Labels that its service gives it.

    From the declaration, which only a private field keeps, and from samples where there are any.
    """
    declared: tuple[str, ...] = getattr(metric, "_labelnames", ())
    sampled = {label for sample in metric.samples for label in sample.labels} - {"le"}
    assert not {"job", "instance", "region"} & {*declared, *sampled}, f"{metric.name} has a target's label"
    return tuple(sorted({*declared, *sampled}))
