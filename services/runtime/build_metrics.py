"""Which build a process runs: `kvcompass_build_info`, the same for every service."""

import platform
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcompass.roles.messages import PROTOCOL_VERSION
from services.runtime.version import VERSION


class BuildCollector(Collector):
    """1, with what runs as labels."""

    def collect(self) -> Iterator[Metric]:
        """One series."""
        build = GaugeMetricFamily(
            "kvcompass_build_info",
            "1; the labels say which build runs, the protocol it speaks and the Python under it.",
            labels=("version", "protocol", "python"),
        )
        build.add_metric((VERSION, str(PROTOCOL_VERSION), platform.python_version()), 1.0)
        yield build
