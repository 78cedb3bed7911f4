"""Metrics of a unit's own snapshot: `kvcompass_unit_snapshot_*`."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcompass.roles.unit_snapshot_bytes import RestoreOutcome
from services.maintenance.snapshot_keeper import SnapshotKeeper, WriteFailure


class SnapshotCollector(Collector):
    """Exports one file. Costs nothing between scrapes."""

    def __init__(self, keeper: SnapshotKeeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        keeper = self._keeper
        restores = CounterMetricFamily(
            "kvcompass_unit_snapshot_restores",
            "Starts from the unit's own snapshot, by outcome; all but restored and missing want a look.",
            labels=("outcome",),
        )
        for outcome in RestoreOutcome:
            restores.add_metric((outcome.value,), int(outcome is keeper.outcome))
        yield restores
        failures = CounterMetricFamily(
            "kvcompass_unit_snapshot_failures", "Snapshots not written, by reason.", labels=("reason",)
        )
        for reason in WriteFailure:
            failures.add_metric((reason.value,), keeper.failures[reason])
        yield failures
        yield CounterMetricFamily("kvcompass_unit_snapshot_writes", "Snapshots written.", value=keeper.writes)
        gauges = [
            (
                "age_seconds",
                "Since the file had all that the unit holds; since the start where it never had.",
                keeper.age_s,
            ),
            (
                "refused",
                "1 when this process began empty, since it refused the file.",
                float(keeper.outcome not in (RestoreOutcome.RESTORED, RestoreOutcome.MISSING)),
            ),
            ("period_seconds", "At which the file is to be written.", keeper.period_s),
            ("size_bytes", "Of the file.", keeper.size),
            ("write_seconds", "What the last writing took, copying included.", keeper.write_s),
        ]
        for name, what, value in gauges:
            yield GaugeMetricFamily(f"kvcompass_unit_snapshot_{name}", what, value=value)
