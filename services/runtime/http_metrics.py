"""What HTTP listeners turned away: `kvcompass_http_cut_connections_total`, the same for every service."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from services.runtime.http_bounds import Cut
from services.runtime.http_server import HttpServer


class HttpCutsCollector(Collector):
    """Reads the listeners when it is scraped. `listeners`: the label's value of each."""

    def __init__(self, listeners: Mapping[str, HttpServer]) -> None:
        self._listeners = dict(listeners)

    def collect(self) -> Iterator[Metric]:
        """Every listener and reason, also those that never happened."""
        cuts = CounterMetricFamily(
            "kvcompass_http_cut_connections",
            "Connections that broke a bound of their listener, by reason.",
            labels=("listener", "reason"),
        )
        for name, server in self._listeners.items():
            for why in Cut:
                cuts.add_metric((name, why.value), server.cuts[why])
        yield cuts
