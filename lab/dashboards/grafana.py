"""From rows of panels to the JSON that Grafana provisions (classic dashboard model)."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from lab.dashboards.panels import Panel, Row, Shape

UID: Final = "kvcompass"
DATA_SOURCE: Final = {"type": "prometheus", "uid": "kvcompass-prometheus"}
"""As `deploy/compose/grafana/provisioning/datasources/prometheus.yml` names it."""
REGION_QUERY: Final = "label_values(up, region)"

_SCHEMA_VERSION = 41
_COLUMNS = 24
_HEIGHTS: Final = {Shape.STAT: 4, Shape.LINES: 8, Shape.STATES: 8}


def dashboard(rows: Sequence[Row]) -> dict[str, Any]:
    """The whole document. Panels flow from left to right, a row of the grid as high as its highest."""
    return {
        "uid": UID,
        "title": "KVCompass",
        "description": "Traffic, first tokens, reuse, workers, views of the index and the WAN. "
        "Written by `python -m lab.dashboards`: change it there.",
        "tags": ["kvcompass"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m"]},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_region_variable()]},
        "panels": list(_placed(rows)),
    }


def _region_variable() -> dict[str, Any]:
    return {
        "name": "region",
        "label": "Region",
        "description": "Where the processes stand that are asked; what they say of other regions stays.",
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"qryType": 1, "query": REGION_QUERY, "refId": "region"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    y = 0
    for row in rows:
        yield {
            "id": row.id,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
        }
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                x, y, height = 0, y + height, 0
            height = max(height, _HEIGHTS[panel.shape])
            place = {"x": x, "y": y, "w": panel.width, "h": _HEIGHTS[panel.shape]}
            yield {**_panel(panel), "gridPos": place}
            x += panel.width
        y += height


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "id": panel.id,
        "type": panel.shape.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": DATA_SOURCE,
                "editorMode": "code",
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "range": panel.shape is not Shape.STAT,
                "instant": panel.shape is Shape.STAT,
            }
            for i, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _options(panel.shape),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit.value,
        "noValue": panel.nothing,
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": step.colour.value, "value": step.value} for step in panel.steps],
        },
        "mappings": _mappings(panel),
        "color": {"mode": "palette-classic-by-name" if panel.shape is Shape.LINES else "thresholds"},
        "custom": _custom(panel),
    }
    if panel.shape is Shape.LINES:
        defaults["min"] = 0
    if panel.largest is not None:
        defaults["max"] = panel.largest
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    return defaults


def _mappings(panel: Panel) -> list[dict[str, Any]]:
    if not panel.words:
        return []
    options = {
        str(code): {"text": words.text, "color": words.colour.value, "index": index}
        for index, (code, words) in enumerate(panel.words.items())
    }
    return [{"type": "value", "options": options}]


def _custom(panel: Panel) -> dict[str, Any]:
    match panel.shape:
        case Shape.STAT:
            return {}
        case Shape.STATES:
            return {"fillOpacity": 80, "lineWidth": 0}
        case Shape.LINES:
            return {
                "drawStyle": "line",
                "lineInterpolation": "linear",
                "lineWidth": 1,
                "fillOpacity": 30 if panel.stacked else 5,
                "showPoints": "never",
                "spanNulls": False,
                "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
                "thresholdsStyle": {"mode": "dashed" if _has_limits(panel) else "off"},
            }


def _has_limits(panel: Panel) -> bool:
    return any(step.value is not None for step in panel.steps)


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    for name, colour in panel.colours.items():
        yield {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour.value}}],
        }


def _options(shape: Shape) -> dict[str, Any]:
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    match shape:
        case Shape.STAT:
            return {
                "colorMode": "background",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "textMode": "value",
                "wideLayout": True,
                "showPercentChange": False,
                "percentChangeColorMode": "standard",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        case Shape.STATES:
            return {
                "legend": legend,
                "tooltip": {"mode": "single", "sort": "none"},
                "mergeValues": True,
                "showValue": "never",
                "alignValue": "left",
                "rowHeight": 0.9,
            }
        case Shape.LINES:
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
