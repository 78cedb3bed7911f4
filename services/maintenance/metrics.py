"""Metrics of a maintenance unit: `kvcompass_maintenance_*`, read from the unit when they are scraped."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcompass.roles.free_places import PlaceState
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.worker_source import Registration

_COUNTERS = {
    "edited_keys": "Keys edited.",
    "old_messages": "Edits and reports at or below the applied sequence, ignored.",
    "ignored_edits": "Edits of a worker whose full report is awaited.",
    "holes": "Holes in an agent's sequence.",
    "digest_mismatches": "Workers whose holdings differed from the table.",
    "report_requests": "Full reports asked for.",
    "full_reports": "Full reports received.",
    "leases_ended": "Workers cleared because their lease ended.",
    "rebuilds": "Table rebuilds; each sends every subscriber a snapshot.",
    "growths": "Tables doubled in place, which needs no snapshot.",
    "refusals": "Handshakes and messages refused.",
    "superseded_agents": "Open streams of a worker whose place another agent took: two, if it goes on.",
    "superseded_streams": "Open streams of a worker whose place one of the same agent's epoch took.",
    "superseded_subscribers": "Open streams of an edge whose place a newer one of it took.",
    "over_bound": "Refusals of workers that have more keys than the plan allows.",
    "snapshots": "Snapshots begun.",
    "overflows": "Subscribers that fell off the log and were sent a snapshot.",
    "stalled": "Streams ended since their subscriber took no message for 10 s.",
}


class UnitCollector(Collector):
    """Exports one unit. Costs nothing between scrapes."""

    def __init__(self, unit: MaintenanceUnit, now_us: Callable[[], int]) -> None:
        self._unit = unit
        self._now_us = now_us

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        unit = self._unit
        for name, what in _COUNTERS.items():
            yield CounterMetricFamily(
                f"kvcompass_maintenance_{name}", what, value=getattr(unit.counters, name)
            )
        lags = unit.subscriber_lags().values()
        gauges = [
            ("entries", "Keys in the shard.", unit.entries),
            ("sequence_groups", "Number of the newest patch group.", unit.sequence),
            ("settled", "1 when every worker has reported, or has had its chance.", int(unit.settled)),
            ("live_workers", "Workers with a lease.", len(unit.live_workers())),
            (
                "awaited_workers",
                "Workers whose fields may not be what they hold.",
                len(unit.awaited_workers()),
            ),
            ("subscribers", "Edges that follow the shard.", len(lags)),
            (
                "subscriber_lag_groups",
                "Patch groups the slowest subscriber has not acknowledged.",
                max(lags, default=0),
            ),
        ]
        for name, what, value in gauges:
            yield GaugeMetricFamily(f"kvcompass_maintenance_{name}", what, value=value)
        yield from self._workers()
        yield self._places()

    def _places(self) -> Metric:
        counted = Counter(place.state for place in self._unit.vacant_places())
        places = GaugeMetricFamily(
            "kvcompass_maintenance_vacant_places",
            "Places of workers that left, by what is to happen before a plan may give them again.",
            labels=("state",),
        )
        for state in PlaceState:
            places.add_metric((state.value,), counted[state])
        return places

    def _workers(self) -> Iterator[Metric]:
        registration = GaugeMetricFamily(
            "kvcompass_maintenance_worker_registration",
            "1 for how each worker stands at the unit.",
            labels=("worker", "state"),
        )
        lease = GaugeMetricFamily(
            "kvcompass_maintenance_worker_lease_seconds",
            "Left of each worker's lease; none where there is no lease.",
            labels=("worker",),
        )
        for worker, told in self._unit.registered(self._now_us()).items():
            for each in Registration:
                registration.add_metric((worker, each.value), float(each is told.registration))
            if told.lease_left_us is not None:
                lease.add_metric((worker,), told.lease_left_us / 1e6)
        yield from (registration, lease)
