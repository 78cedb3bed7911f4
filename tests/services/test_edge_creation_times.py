"""An edge's process exports its series, and not when each began."""

import sys

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry

from services.edge import __main__ as process
from services.edge.metrics import EdgeMetrics


def names() -> set[str]:
    registry = CollectorRegistry()
    EdgeMetrics(registry).requests.labels("chat", "ok")
    return {sample.name for metric in registry.collect() for sample in metric.samples}


def test_creation_times_are_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kvcompass-edge", "--settings", "edge.toml"])
    monkeypatch.setattr(process, "run", lambda serve: None)
    prometheus_client.enable_created_metrics()  # another test may have run an edge's start
    before = names()
    try:
        process.main()
        assert names() == {name for name in before if not name.endswith("_created")} < before
    finally:
        prometheus_client.enable_created_metrics()
