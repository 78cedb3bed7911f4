"""What expressions and alerts come to, on series made up for them; asked of Prometheus's own promtool."""

import json
import re
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
    fired = [expected(name, labels) for name, labels in zip(names, wanted, strict=True)]
    evaluate(tmp_path, series, at="3m", alert_rule_test=fired)


def test_a_plan_change_that_does_not_end_alerts_and_one_that_does_never(tmp_path) -> None:
    version = 'kvcompass_plan_version{job="%s", region="us"}'
    name, labels = "KVCompassPlanNotOne", {"severity": "ticket"}
    ends = {version % "edge": "1x20 2x400", version % "maintenance": "1x15 2x405"}
    evaluate(tmp_path, ends, at="30m", alert_rule_test=[fires(name)])
    stuck = {version % "edge": "1x20 2x400", version % "maintenance": "1x420"}
    evaluate(tmp_path, stuck, at="30m", alert_rule_test=[expected(name, labels)])


@pytest.mark.parametrize(
    ("versions", "fired"),
    [
        (("1.0", "1.0"), True),
        (("1.0", "1.1"), False),
    ],
)
def test_two_contents_of_a_plan_alert_but_not_while_two_builds_run(tmp_path, versions, fired: bool) -> None:
    """Builds may know other fields, and so take one file for two plans."""
    instances = tuple(zip(("a", "b"), versions, strict=True))
    told = {
        f'kvcompass_build_info{{instance="{each}", version="{version}", python="{python}"}}': "1x420"
        for (each, version), python in zip(instances, ("3.11", "3.12"), strict=True)
    }
    contents = {f'kvcompass_plan_content{{instance="{each}"}}': f"{i}x420" for i, each in enumerate("ab")}
    name, labels = "KVCompassPlanNotOne", {"severity": "ticket"}
    evaluate(tmp_path, told | contents, at="30m", alert_rule_test=[expected(name, *[labels] * fired)])


def test_an_upgrade_hides_no_versions_and_nothing_that_is_not_settled(tmp_path) -> None:
    builds = {f'kvcompass_build_info{{instance="{each}", version="{each}"}}': "1x420" for each in "ab"}
    name, labels = "KVCompassPlanNotOne", {"severity": "ticket"}
    versions = {f'kvcompass_plan_version{{instance="{each}"}}': f"{i}x420" for i, each in enumerate("ab")}
    settled = {f'kvcompass_plan_settled{{instance="{each}"}}': f"{i}x420" for i, each in enumerate("ab")}
    for told in (versions, settled):
        evaluate(tmp_path, builds | told, at="30m", alert_rule_test=[expected(name, labels)])


def test_failing_requests_alert(tmp_path) -> None:
    requests = 'kvcompass_edge_requests_total{region="us", outcome="%s"}'
    series = {requests % "ok": "0+3x120", requests % "no_worker": "0+1x120"}
    labels = {"severity": "page", "region": "us"}
    name = "KVCompassErrorShare"
    evaluate(tmp_path, series, at="1m", alert_rule_test=[fires(name)])
    evaluate(tmp_path, series, at="5m", alert_rule_test=[expected(name, labels, value="25%")])


def test_failures_of_a_quiet_region_page_nobody(tmp_path) -> None:
    """us: every request fails, one in 15 s; eu: every one, 3 in 15 s; asia: 12 in 15 s, of very many."""
    requests = 'kvcompass_edge_requests_total{region="%s", outcome="%s"}'
    series = {
        requests % ("us", "no_worker"): " ".join(str(i // 3) for i in range(120)),
        requests % ("eu", "no_worker"): "0+1x120",
        requests % ("asia", "ok"): "0+100x120",
        requests % ("asia", "no_worker"): "0+4x120",
    }
    name, labels = "KVCompassErrorShare", {"severity": "page", "region": "eu"}
    evaluate(tmp_path, series, at="9m", alert_rule_test=[expected(name, labels, value="100%")])


def test_clients_that_are_refused_alert_where_they_are_many(tmp_path) -> None:
    """us: half, by both; eu: a quarter; asia: all, one in 15 s."""
    requests = 'kvcompass_edge_requests_total{region="%s", outcome="%s"}'
    series = {
        requests % ("us", "ok"): "0+2x120",
        requests % ("us", "unauthorized"): "0+1x120",
        requests % ("us", "engine_refused"): "0+1x120",
        requests % ("eu", "ok"): "0+3x120",
        requests % ("eu", "unauthorized"): "0+1x120",
        requests % ("asia", "unauthorized"): " ".join(str(i // 3) for i in range(120)),
    }
    name, labels = "KVCompassClientsRefused", {"severity": "ticket", "region": "us"}
    evaluate(tmp_path, series, at="4m", alert_rule_test=[fires(name)])
    evaluate(tmp_path, series, at="9m", alert_rule_test=[expected(name, labels, value="50%")])


def test_slow_first_bytes_page_where_there_are_enough_of_them(tmp_path) -> None:
    """us: all within 13 s; eu: within 8 s; asia: as us, and too few to say."""
    bucket = 'kvcompass_edge_ttft_seconds_bucket{region="%s", le="%s"}'
    series = {
        bucket % (region, bound): f"0+{int(slow <= bound)}x120"
        for region, slow in (("us", 13), ("eu", 8), ("asia", 13))
        for bound in (5, 8, 13, 21)
    }
    series |= {bucket % (region, "+Inf"): "0+1x120" for region in ("us", "eu", "asia")}
    requests = 'kvcompass_edge_requests_total{region="%s", outcome="ok"}'
    series |= {requests % region: "0+1x120" for region in ("us", "eu")}
    series[requests % "asia"] = " ".join(str(i // 3) for i in range(120))
    name, labels = "KVCompassTtftSlow", {"severity": "page", "region": "us"}
    evaluate(tmp_path, series, at="4m", alert_rule_test=[fires(name)])
    evaluate(tmp_path, series, at="9m", alert_rule_test=[expected(name, labels, value="12.75s")])


@pytest.mark.parametrize(
    ("alert", "sick", "well", "labels", "value"),
    [
        (
            "KVCompassQueuesLong",
            {
                'kvcompass_edge_worker_queue_ms{instance="e", worker="w", worker_region="us"}': "0x300",
                'kvcompass_edge_worker_queue_ms{instance="f", worker="w", worker_region="us"}': "10001x300",
            },
            {'kvcompass_edge_worker_queue_ms{instance="e", worker="v", worker_region="us"}': "10000x300"},
            {"worker": "w", "worker_region": "us"},
            "10k",
        ),
        (
            "KVCompassWrongClaims",
            {'kvcompass_edge_wrong_claims_total{instance="e", worker="w"}': "0+1x300"},
            {'kvcompass_edge_wrong_claims_total{instance="e", worker="v"}': "0x11 1x11 2x11 3x11 4x300"},
            {"worker": "w"},
            "12",
        ),
        (
            "KVCompassKeysNotRegistered",
            {'kvcompass_worker_agent_unregistered_keys{worker="w", region="us"}': "7x300"},
            {'kvcompass_worker_agent_unregistered_keys{worker="v", region="us"}': "0x300"},
            {"worker": "w", "region": "us"},
            "7",
        ),
        (
            "KVCompassConnectionsTurnedAway",
            {
                'kvcompass_http_cut_connections_total{instance="e", listener="peer",'
                ' reason="too_many"}': "0+1x300"
            },
            {
                'kvcompass_http_cut_connections_total{instance="e", listener="peer",'
                ' reason="stalled"}': "0+1x300"
            },
            {"instance": "e", "listener": "peer"},
            "",
        ),
        (
            "KVCompassPeersDenied",
            {
                'kvcompass_edge_peer_requests_total{instance="e", region="us", origin="unknown",'
                ' outcome="unauthorized"}': "1+1x300"
            },
            {
                'kvcompass_edge_peer_requests_total{instance="f", region="us", origin="eu",'
                ' outcome="ok"}': "0+1x300"
            },
            {"instance": "e", "region": "us"},
            "",
        ),
        (
            "KVCompassKeyNotTaken",
            {
                'kvcompass_edge_retries_total{instance="e", region="us", cause="status_403"}': "0+1x300",
            },
            {
                'kvcompass_edge_retries_total{instance="f", region="us", cause="status_503"}': "0+1x300",
            },
            {"instance": "e", "region": "us"},
            "",
        ),
        (
            "KVCompassFilesRunOut",
            {
                'process_open_fds{job="edge", instance="e"}': "900x300",
                'process_max_fds{job="edge", instance="e"}': "1000x300",
            },
            {
                'process_open_fds{job="edge", instance="f"}': "800x300",
                'process_max_fds{job="edge", instance="f"}': "1000x300",
                'process_open_fds{job="another", instance="g"}': "1000x300",
                'process_max_fds{job="another", instance="g"}': "1000x300",
            },
            {"instance": "e"},
            "90%",
        ),
    ],
)
def test_what_lasts_alerts_and_what_is_well_does_not(
    tmp_path, alert: str, sick: dict[str, str], well: dict[str, str], labels: dict[str, str], value: str
) -> None:
    evaluate(tmp_path, sick | well, at="4m", alert_rule_test=[fires(alert)])
    told = expected(alert, {**labels, "severity": "ticket"}, value=value)
    evaluate(tmp_path, sick | well, at="20m", alert_rule_test=[told])


def test_a_plan_that_was_not_taken_alerts_at_once_and_for_a_while(tmp_path) -> None:
    applies = 'kvcompass_plan_applies_total{instance="%s", outcome="%s"}'
    series = {
        applies % ("u", "failed"): "0x11 1x60",
        applies % ("u", "unsigned"): "0x72",
        applies % ("v", "refused"): "0x11 1x60",
    }
    name, labels = "KVCompassPlanChangeFailed", {"instance": "u", "outcome": "failed", "severity": "ticket"}
    evaluate(tmp_path, series, at="90s", alert_rule_test=[expected(name, labels)])
    evaluate(tmp_path, series, at="5m", alert_rule_test=[fires(name)])


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
    evaluate(tmp_path, series, at="30s", alert_rule_test=[fires(name)])
    evaluate(tmp_path, series, at="2m", alert_rule_test=[expected(name, *labels)])


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
    severity = "page" if alert == "KVCompassTwoSpeakForOne" else "ticket"
    fired = expected(alert, {"instance": "x", "severity": severity})
    evaluate(tmp_path, series, at="1m", alert_rule_test=[fires(alert)])
    evaluate(tmp_path, series, at="8m", alert_rule_test=[fired])


def expected(name: str, *labels: dict[str, str], value: str = "") -> dict[str, Any]:
    """Alerts with these labels, and the rule's words."""
    told = fires(name, *labels)
    for each in told["exp_alerts"]:
        each["exp_annotations"] = annotations(name, each["exp_labels"], value)
    return told


def annotations(name: str, labels: dict[str, str], value: str = "") -> dict[str, str]:
    """The rule's, with its labels filled in."""
    (alert,) = [alert for alert in alerts() if alert.name == name]
    summary = re.sub(r"{{ \$value \| \w+ }}", value, alert.summary)
    for label, text in labels.items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", text)
    assert "{{" not in summary
    return {"summary": summary, "runbook": alert.runbook}
