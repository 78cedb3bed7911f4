"""The dashboard's rows, one a module, from the first screen down to what units keep."""

from lab.dashboards.panels import Row
from lab.dashboards.promql import DASHBOARD, Expressions
from lab.dashboards.rows.glance import glance
from lab.dashboards.rows.keeping import keeping
from lab.dashboards.rows.reuse import reuse
from lab.dashboards.rows.traffic import traffic
from lab.dashboards.rows.ttft import ttft
from lab.dashboards.rows.views import views
from lab.dashboards.rows.wan import wan
from lab.dashboards.rows.workers import workers


def rows() -> tuple[Row, ...]:
    """All of them, in order. Errors: ExpressionError when a metric they need is not exported."""
    metrics = Expressions(DASHBOARD)
    return tuple(make(metrics) for make in (glance, traffic, ttft, reuse, workers, views, wan, keeping))
