"""What expressions and alerts come to, on series made up for them; asked of Prometheus's own promtool."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvcompass.roles.index_follower import FollowerState
from lab.dashboards import signals
from lab.dashboards.alerts import alerts
from lab.dashboards.promql import Expressions, Scope
from lab.dashboards.rows import rows
from lab.dashboards.rows.views import VIEW_STATES
from lab.dashboards.rows.workers import AGENT_STATES
from lab.dashboards.verify import substituted

PROMTOOL = shutil.which("promtool")
PROMETHEUS = Path(__file__).parents[2] / "deploy" / "compose" / "prometheus"
METRICS = Expressions(Scope((), "1m"))

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def evaluate(tmp_path: Path, series: dict[str, str], *, at: str = "2m", **wanted: Any) -> None:
    """`wanted`: lists of promtool's `promql_expr_test` or `alert_rule_test`, without their `eval_time`."""
    test = {
        "interval": "5s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        **{kind: [{"eval_time": at, **each} for each in tests] for kind, tests in wanted.items()},
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(PROMETHEUS / "alerts.yml")], "tests": [test]}))
    promtool("test", "rules", file)


def values(expression: str, *samples: tuple[str, float]) -> dict[str, Any]:
    expected = [{"labels": labels, "value": value} for labels, value in samples]
    return {"expr": expression, "exp_samples": expected}


def panel_expressions(number: int) -> list[str]:
    panels = {panel.id: panel for row in rows() for panel in row.panels}
    return [substituted(query.expression) for query in panels[number].queries]


def fires(name: str, *labels: dict[str, str]) -> dict[str, Any]:
    return {"alertname": name, "exp_alerts": [{"exp_labels": each} for each in labels]}


def test_the_configuration_and_the_rules_are_valid() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


def test_error_share_counts_our_failures_and_is_nothing_without_traffic(tmp_path) -> None:
    requests = 'kvcompass_edge_requests_total{route="chat", region="%s", outcome="%s"}'
    series = {
        requests % ("us", "ok"): "0+2x60",
        requests % ("us", "timeout"): "0+1x60",
        requests % ("us", "cancelled"): "0+1x60",
        requests % ("eu", "ok"): "0+1x60",
        requests % ("eu", "timeout"): "0+0x60",
        requests % ("asia", "ok"): "5+0x60",
        requests % ("asia", "timeout"): "5+0x60",
    }
    by_region = values(signals.error_share(METRICS, "region"), ('{region="us"}', 0.25), ('{region="eu"}', 0))
    evaluate(tmp_path, series, promql_expr_test=[by_region])


def test_a_quantile_is_nothing_without_observations(tmp_path) -> None:
    bucket = 'kvcompass_edge_ttft_seconds_bucket{region="%s", le="%s"}'
    series = {
        bucket % ("us", "1"): "0+1x60",
        bucket % ("us", "+Inf"): "0+1x60",
        bucket % ("eu", "1"): "7+0x60",
        bucket % ("eu", "+Inf"): "7+0x60",
    }
    median = METRICS.quantile(0.5, "kvcompass_edge_ttft_seconds", "region")
    evaluate(tmp_path, series, promql_expr_test=[values(median, ('{region="us"}', 0.5))])


def test_crossing_share_tells_other_regions_from_home(tmp_path) -> None:
    decisions = 'kvcompass_edge_decisions_total{region="%s", worker_region="%s", reason="%s"}'
    series = {
        decisions % ("us", "us", "nearer"): "0+1x60",
        decisions % ("us", "us", "no_match"): "0+1x60",
        decisions % ("us", "eu", "no_match"): "0+2x60",
        decisions % ("eu", "eu", "no_match"): "0+4x60",
        decisions % ("eu", "us", "no_match"): "0+0x60",
    }
    by_region = values(
        signals.crossing_share(METRICS, "region"), ('{region="us"}', 0.5), ('{region="eu"}', 0)
    )
    evaluate(
        tmp_path, series, promql_expr_test=[by_region, values(signals.crossing_share(METRICS), ("{}", 0.25))]
    )


def test_states_become_their_place_in_the_list(tmp_path) -> None:
    indicator = 'kvcompass_worker_agent_state{worker="%s", state="%s"}'
    series = {
        indicator % (worker, state.value): f"{int(worker == state.value)}x60"
        for worker in ("exact", "partial", "refused")
        for state in AGENT_STATES
    }
    places = {state.value: place for place, state in enumerate(AGENT_STATES)}
    coded = METRICS.state("kvcompass_worker_agent_state", places, "worker")
    wanted = [(f'{{worker="{worker}"}}', places[worker]) for worker in ("exact", "partial", "refused")]
    evaluate(tmp_path, series, promql_expr_test=[values(coded, *wanted)])


def test_of_two_edges_in_a_region_the_worse_view_is_told(tmp_path) -> None:
    indicator = 'kvcompass_edge_view_state{instance="%s", region="us", shard="0", state="%s"}'
    series = {
        indicator % (edge, state): f"{int(state == 'catching_up')}x60"
        for edge in ("one", "other")
        for state in VIEW_STATES
    }
    (expression,) = panel_expressions(501)
    code = list(VIEW_STATES).index(FollowerState.CATCHING_UP)
    evaluate(tmp_path, series, promql_expr_test=[values(expression, ('{region="us", shard="0"}', code))])


def test_the_planned_round_trip_is_both_ways_and_its_error_a_share_of_5_percent(tmp_path) -> None:
    wan = 'kvcompass_wan_%s{region="%s", origin="%s", destination="%s"}'
    series = {
        wan % ("one_way_ms", "us", "us", "eu"): "150x60",
        wan % ("one_way_ms", "eu", "eu", "us"): "170x60",
        wan % ("rtt_ms", "us", "us", "eu"): "315x60",
        wan % ("rtt_ms", "eu", "eu", "us"): "324x60",
    }
    there, back = '{origin="us", destination="eu"}', '{origin="eu", destination="us"}'
    _, planned = panel_expressions(601)
    (error,) = panel_expressions(602)
    evaluate(
        tmp_path,
        series,
        promql_expr_test=[
            values(planned, (there, 320), (back, 320)),
            values(error, (there, 5 / 16), (back, 4 / 16)),
            values(planned.replace('region=~".*"', 'region="us"'), (there, 320)),
        ],
    )


def test_the_first_screen_counts_what_is_not_well(tmp_path) -> None:
    state = 'kvcompass_edge_view_state{region="us", instance="e", shard="%d", state="%s"}'
    standing = 'kvcompass_edge_worker_standing{region="%s", worker="%s"}'
    series = {
        state % (0, "exact"): "1x60",
        state % (0, "stale"): "0x60",
        state % (1, "exact"): "0x60",
        state % (1, "stale"): "1x60",
        standing % ("us", "a"): "0x60",
        standing % ("eu", "a"): "3x60",
        standing % ("us", "b"): "0x60",
        standing % ("eu", "b"): "0x60",
        'up{job="edge", region="us", instance="e"}': "1x60",
        'up{job="engine", region="us", instance="w"}': "0x60",
        'up{job="someone_elses", region="us", instance="x"}': "0x60",
    }
    wanted = [
        values(expression, ("{}", 1)) for number in (7, 8, 9) for expression in panel_expressions(number)
    ]
    evaluate(tmp_path, series, promql_expr_test=wanted)


def test_alerts_fire_after_their_time_and_not_before(tmp_path) -> None:
    series = {
        'up{job="edge", region="us", instance="gone"}': "1x11 0x60",
        'kvcompass_edge_ready{region="us", instance="e"}': "1x11 0x60",
        'kvcompass_edge_view_state{region="us", instance="e", shard="1", state="stale"}': "0x11 1x60",
        'kvcompass_edge_view_state{region="us", instance="e", shard="0", state="stale"}': "0x72",
        'kvcompass_worker_agent_state{region="us", worker="w", state="refused"}': "0x11 1x60",
        'kvcompass_worker_agent_state{region="us", worker="v", state="partial"}': "1x72",
        'kvcompass_worker_agent_state{region="us", worker="s", state="silent"}': "0x11 1x60",
        'kvcompass_wan_partitioned{region="us", origin="us", destination="eu"}': "0x11 1x60",
    }
    page = {"severity": "page", "region": "us"}
    names = [
        "KVCompassProcessDown",
        "KVCompassEdgeNotReady",
        "KVCompassShardNotExact",
        "KVCompassWorkerUnreachable",
        "KVCompassWorkerSilent",
        "KVCompassWanPartition",
    ]
    evaluate(tmp_path, series, at="75s", alert_rule_test=[fires(name) for name in names])
    wanted = [
        {**page, "job": "edge", "instance": "gone"},
        {**page, "instance": "e"},
        {**page, "instance": "e", "shard": "1"},
        {**page, "worker": "w"},
        {"severity": "ticket", "region": "us", "worker": "s"},
        {"severity": "ticket", "origin": "us", "destination": "eu"},
    ]
    fired = [fires(name, labels) for name, labels in zip(names, wanted, strict=True)]
    for each in fired:
        each["exp_alerts"][0]["exp_annotations"] = annotations(
            each["alertname"], each["exp_alerts"][0]["exp_labels"]
        )
    evaluate(tmp_path, series, at="3m", alert_rule_test=fired)


def test_a_plan_change_that_does_not_end_alerts_and_one_that_does_never(tmp_path) -> None:
    version = 'kvcompass_plan_version{job="%s", region="us"}'
    name, labels = "KVCompassPlanNotOne", {"severity": "ticket"}
    ends = {version % "edge": "1x20 2x400", version % "maintenance": "1x15 2x405"}
    evaluate(tmp_path, ends, at="30m", alert_rule_test=[fires(name)])
    stuck = {version % "edge": "1x20 2x400", version % "maintenance": "1x420"}
    alert = fires(name, labels)
    alert["exp_alerts"][0]["exp_annotations"] = annotations(name, labels)
    evaluate(tmp_path, stuck, at="30m", alert_rule_test=[alert])


def test_failing_requests_alert(tmp_path) -> None:
    requests = 'kvcompass_edge_requests_total{region="us", outcome="%s"}'
    series = {requests % "ok": "0+3x120", requests % "no_worker": "0+1x120"}
    labels = {"severity": "page", "region": "us"}
    name = "KVCompassErrorShare"
    alert = fires(name, labels)
    alert["exp_alerts"][0]["exp_annotations"] = annotations(name, labels, value="25%")
    evaluate(tmp_path, series, at="1m", alert_rule_test=[fires(name)])
    evaluate(tmp_path, series, at="5m", alert_rule_test=[alert])


def test_a_worker_that_nobody_hears_at_home_alerts_wherever_it_is_known_else(tmp_path) -> None:
    """a: known at home; b: at none of its two edges at home, but elsewhere; c: at one of them; d: is out."""
    standing = 'kvcompass_edge_worker_standing{instance="%s", region="%s", worker="%s", worker_region="us"}'
    told = {"a": (0, 0, 1), "b": (1, 1, 0), "c": (1, 0, 0), "d": (3, 3, 1)}
    series = {
        standing % (edge, region, worker): f"{values[place]}x60"
        for worker, values in told.items()
        for place, (edge, region) in enumerate([("us-0", "us"), ("us-1", "us"), ("eu-0", "eu")])
    } | {standing.replace('worker_region="us"', 'worker_region="eu"') % ("eu-0", "eu", "e"): "0x60"}
    name = "KVCompassWorkerLoadUnknown"
    unheard = [("us-0", "b"), ("us-1", "b"), ("us-0", "c")]
    labels = [{"instance": edge, "worker": worker, "severity": "ticket"} for edge, worker in unheard]
    alert = fires(name, *labels)
    for each in alert["exp_alerts"]:
        each["exp_annotations"] = annotations(name, each["exp_labels"])
    evaluate(tmp_path, series, at="30s", alert_rule_test=[fires(name)])
    evaluate(tmp_path, series, at="2m", alert_rule_test=[alert])


@pytest.mark.parametrize(
    ("metric", "alert"),
    [
        ('kvcompass_edge_superseded_load_streams_total{%s, process="same"}', "KVCompassStreamsReplaced"),
        ("kvcompass_maintenance_superseded_streams_total{%s}", "KVCompassStreamsReplaced"),
        ("kvcompass_maintenance_superseded_subscribers_total{%s}", "KVCompassStreamsReplaced"),
        ("kvcompass_edge_relay_superseded_subscribers_total{%s}", "KVCompassStreamsReplaced"),
        ('kvcompass_edge_loads_total{%s, source="agent", use="old_sequence"}', "KVCompassLoadsOvertaken"),
        (
            'kvcompass_edge_superseded_load_streams_total{%s, process="another"}',
            "KVCompassTwoSpeakForOne",
        ),
    ],
)
def test_what_is_replaced_or_overtaken_again_and_again_alerts(tmp_path, metric: str, alert: str) -> None:
    """Once every 5 s; and once a minute, as connections that break do."""
    often, now_and_then = metric % 'instance="x", region="us"', metric % 'instance="y", region="us"'
    series = {often: "0+1x120", now_and_then: "0x11 1x11 2x11 3x11 4x11 5x11 6x11 7x11 8x11 9x11"}
    fired = fires(
        alert, {"instance": "x", "severity": "page" if alert == "KVCompassTwoSpeakForOne" else "ticket"}
    )
    fired["exp_alerts"][0]["exp_annotations"] = annotations(alert, {"instance": "x"})
    evaluate(tmp_path, series, at="1m", alert_rule_test=[fires(alert)])
    evaluate(tmp_path, series, at="8m", alert_rule_test=[fired])


def annotations(name: str, labels: dict[str, str], value: str = "") -> dict[str, str]:
    """The rule's, with its labels filled in."""
    (alert,) = [alert for alert in alerts() if alert.name == name]
    summary = alert.summary.replace("{{ $value | humanizePercentage }}", value)
    for label, text in labels.items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", text)
    assert "{{" not in summary
    return {"summary": summary, "runbook": alert.runbook}
