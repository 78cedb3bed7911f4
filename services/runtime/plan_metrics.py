"""Which plan a component runs and what became of those it was brought, the same for every service."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.runtime.plan_desk import Outcome, PlanDesk


class PlanCollector(Collector):
    """Reads the desk when it is scraped."""

    def __init__(self, desk: PlanDesk) -> None:
        self._desk = desk

    def collect(self) -> Iterator[Metric]:
        """The metrics now, also of outcomes that never were."""
        desk = self._desk
        yield GaugeMetricFamily(
            "kvcompass_plan_version", "Version of the plan that runs.", desk.plan.plan_version
        )
        yield GaugeMetricFamily(
            "kvcompass_plan_content",
            "48 bits of the running plan's digest: of equal versions, another number is another content.",
            float(int(desk.digest[:12], 16)),
        )
        yield GaugeMetricFamily(
            "kvcompass_plan_settled",
            "1 when nothing is kept of the version before.",
            float(desk.settled),
        )
        applies = CounterMetricFamily(
            "kvcompass_plan_applies", "Plans that were brought, by outcome.", labels=["outcome"]
        )
        for outcome in Outcome:
            applies.add_metric([outcome.value], desk.outcomes[outcome])
        yield applies
