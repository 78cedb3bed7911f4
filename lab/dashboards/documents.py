"""The files that are generated: the dashboard, the alert rules and the page of metrics, as text."""

import json
from collections.abc import Iterable, Mapping

from lab.dashboards.alerts import Alert, alerts
from lab.dashboards.grafana import dashboard
from lab.dashboards.reference import reference
from lab.dashboards.rows import rows

DASHBOARD_FILE = "deploy/compose/grafana/dashboards/kvcompass.json"
ALERTS_FILE = "deploy/compose/prometheus/alerts.yml"
REFERENCE_FILE = "docs/metrics.md"


def documents() -> Mapping[str, str]:
    """Path in the repository -> text. Errors: ExpressionError when a metric is not exported any more."""
    return {
        DASHBOARD_FILE: json.dumps(dashboard(rows()), ensure_ascii=False, indent=2) + "\n",
        ALERTS_FILE: _rules(alerts()),
        REFERENCE_FILE: reference(),
    }


def _rules(all_alerts: Iterable[Alert]) -> str:
    """YAML whose every string is a JSON string, which YAML reads alike."""
    lines = ["# Written by `python -m lab.dashboards`: change it there.", "groups:", "  - name: kvcompass"]
    lines.append("    rules:")
    for alert in all_alerts:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasting}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook: {json.dumps(alert.runbook)}",
        ]
    return "\n".join(lines) + "\n"
