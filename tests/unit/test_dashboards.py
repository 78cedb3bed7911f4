"""The dashboard and the alerts: complete, readable, and made of metrics that exist."""

import json
import re
import sys
from itertools import combinations, pairwise
from pathlib import Path

import httpx
import promql_parser
import pytest
import yaml

from kvcompass.fleet.view import Standing
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.worker_source import Registration
from kvcompass.self_test.state import SelfTestResult
from lab.dashboards import __main__ as generator
from lab.dashboards import promql
from lab.dashboards.alerts import alerts
from lab.dashboards.catalogue import ENGINE_GAUGES, TARGET_LABELS, Family, Job, Kind, families
from lab.dashboards.documents import DASHBOARD_FILE, documents
from lab.dashboards.grafana import DATA_SOURCE, dashboard
from lab.dashboards.panels import Shape, Unit
from lab.dashboards.promql import DASHBOARD, ExpressionError, Expressions
from lab.dashboards.rows import rows
from lab.dashboards.rows.keeping import REGISTRATIONS
from lab.dashboards.rows.views import VIEW_STATES
from lab.dashboards.rows.workers import AGENT_STATES, STANDINGS
from lab.dashboards.signals import OUTCOME_COLOURS
from lab.dashboards.verify import questions
from lab.netem import names as wan
from services.edge.metrics import Outcome
from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder

REPOSITORY = Path(__file__).parents[2]
COMPOSE = REPOSITORY / "deploy" / "compose"
ROWS = rows()
ALERTS = list(alerts())
PANELS = [panel for row in ROWS for panel in row.panels]
DOCUMENT = dashboard(ROWS)
EXPRESSIONS = [question.expression for question in questions(DOCUMENT)]
EXPRESSIONS += [alert.expression for alert in ALERTS]


def names_in(expression: str) -> set[str]:
    """Metrics that it reads, a histogram without `_bucket`."""
    return {
        name if name in families() else name.removesuffix("_bucket")
        for name in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", expression)
        if name in families() or name.endswith("_bucket")
    }


USED = sorted(set().union(*(names_in(expression) for expression in EXPRESSIONS)))


def test_the_files_are_what_the_code_writes() -> None:
    for name, text in documents().items():
        assert (REPOSITORY / name).read_text("utf-8") == text, f"{name}: run python -m lab.dashboards"


def test_check_tells_a_file_that_differs_and_leaves_it(tmp_path, monkeypatch, capsys) -> None:
    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["dashboards", "--into", str(tmp_path), *options])
        return generator.main()

    assert run("--check") == 1
    assert list(tmp_path.iterdir()) == []
    assert run() == 0
    assert run("--check") == 0
    (tmp_path / DASHBOARD_FILE).write_text("{}")
    assert run("--check") == 1
    assert (tmp_path / DASHBOARD_FILE).read_text() == "{}"
    assert DASHBOARD_FILE in capsys.readouterr().err


def test_every_panel_says_what_it_shows_and_in_what_unit() -> None:
    for panel in PANELS:
        assert len(panel.description) > 60, panel.title
        assert panel.description.endswith("."), panel.title
        assert panel.queries, panel.title
        assert all(query.legend for query in panel.queries) or panel.shape is Shape.STAT, panel.title
        assert (panel.unit is Unit.STATE) == (panel.shape is Shape.STATES) == bool(panel.words), panel.title


def test_ids_and_titles_name_one_thing_each() -> None:
    ids = [row.id for row in ROWS] + [panel.id for panel in PANELS]
    assert len(set(ids)) == len(ids)
    assert len({panel.title for panel in PANELS}) == len(PANELS)
    for row, following in pairwise(ROWS):
        assert all(row.id < panel.id < following.id for panel in row.panels), row.title


def test_panels_fill_the_grid_without_overlap() -> None:
    def cells(panel) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        return {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }

    taken = [cells(panel) for panel in DOCUMENT["panels"]]
    assert all(not a & b for a, b in combinations(taken, 2))
    everything = set().union(*taken)
    depth = max(y for _, y in everything) + 1
    assert everything == {(x, y) for x in range(24) for y in range(depth)}


def test_every_expression_is_promql() -> None:
    for expression in EXPRESSIONS:
        promql_parser.parse(expression)  # the error quotes what it refuses


def test_every_expression_of_the_dashboard_keeps_to_the_chosen_regions() -> None:
    beyond: set[str] = set()
    for panel in PANELS:
        for query in panel.queries:
            selectors = re.findall(
                r"((?:kvcompass_|process_|sglang:|\bup\b)[a-z_:]*)(\{[^}]*\})?", query.expression
            )
            assert selectors
            beyond |= {name for name, labels in selectors if 'region=~"$region"' not in labels}
    assert beyond == {wan.ONE_WAY_MS}, "the way back is told by the other region's router"


def test_a_metric_that_is_gone_breaks_the_generator(monkeypatch) -> None:
    for name in USED:
        left = {other: family for other, family in families().items() if other != name}
        monkeypatch.setattr(promql, "families", lambda left=left: left)
        with pytest.raises(ExpressionError, match=name):
            rows(), list(alerts())
        monkeypatch.undo()


def test_a_metric_that_changed_its_kind_breaks_the_generator(monkeypatch) -> None:
    for name in USED:
        family = families()[name]
        for kind in set(Kind) - {family.kind}:
            changed = {**families(), name: Family(name, kind, family.labels)}
            monkeypatch.setattr(promql, "families", lambda changed=changed: changed)
            with pytest.raises(ExpressionError, match=name):
                rows(), list(alerts())
            monkeypatch.undo()


def test_a_label_that_does_not_exist_is_refused() -> None:
    metrics = Expressions(DASHBOARD)
    with pytest.raises(ExpressionError, match="has no label shard"):
        metrics.rate("kvcompass_edge_requests_total", "shard")
    with pytest.raises(ExpressionError, match="has no label tenant"):
        metrics.rate("kvcompass_edge_requests_total", tenant="a")


def test_every_metric_can_be_chosen_by_region() -> None:
    assert all("region" in family.labels for family in families().values())


def test_closed_sets_are_shown_whole() -> None:
    assert set(OUTCOME_COLOURS) == set(Outcome)
    assert set(AGENT_STATES) == set(AgentState)
    assert set(VIEW_STATES) == set(FollowerState)
    assert set(STANDINGS) == set(Standing)
    assert set(REGISTRATIONS) == set(Registration)


def test_alerts_say_what_and_what_to_do() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS) >= 5
    for alert in ALERTS:
        assert alert.summary.endswith(".")
        assert alert.runbook.endswith(".")


def test_every_state_that_costs_a_worker_or_its_cache_and_an_untested_one_wake_somebody() -> None:
    told = " ".join(alert.expression for alert in ALERTS)
    for state in (AgentState.UNREACHABLE, AgentState.REFUSED, AgentState.SILENT):
        assert re.search(rf'kvcompass_worker_agent_state{{state=~?"[^"]*\b{state.value}\b', told), state
    assert f'kvcompass_worker_agent_self_test{{result="{SelfTestResult.PENDING.value}"' in told
    assert "kvcompass_worker_agent_lost_batches_total" in told


async def test_the_engine_double_serves_the_engines_names() -> None:
    server = MockServer(MockSettings(address="127.0.0.1:0", model="m"), PromptEncoder.load())
    await server.start()
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{server.port}/metrics")).text
    await server.stop(drain_s=0.1)
    assert all(f"# TYPE {name} gauge\n" in text for name in ENGINE_GAUGES)


def test_prometheus_scrapes_every_job_and_says_where_it_stands() -> None:
    config = yaml.safe_load((COMPOSE / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job["static_configs"] for job in config["scrape_configs"]}
    assert set(jobs) == {job.value for job in Job}
    for name, groups in jobs.items():
        wanted = set(TARGET_LABELS[Job(name)]) - {"job", "instance"}
        assert all(set(group["labels"]) == wanted for group in groups), name
        assert {group["labels"]["region"] for group in groups} == {"us", "eu", "asia"}
        for group in groups:
            assert all(f"-{group['labels']['region']}" in target for target in group["targets"])
    assert config["rule_files"] == ["alerts.yml"]


def test_grafana_is_given_the_data_source_that_panels_name() -> None:
    given = yaml.safe_load((COMPOSE / "grafana/provisioning/datasources/prometheus.yml").read_text())
    assert [(each["type"], each["uid"]) for each in given["datasources"]] == [tuple(DATA_SOURCE.values())]
    assert json.dumps(DOCUMENT).count('"datasource"') == json.dumps(DOCUMENT).count(json.dumps(DATA_SOURCE))


def test_the_types_that_the_json_is_checked_with_are_those_of_the_grafana_that_is_run() -> None:
    image = re.search(r"image: grafana/grafana:(\S+)", (COMPOSE / "compose.yaml").read_text())
    package = json.loads((COMPOSE / "grafana/schema/package.json").read_text())
    assert image is not None
    assert package["devDependencies"]["@grafana/schema"] == image[1]
