"""After the last fault every view tells what live workers hold, within the bound: some hundreds of seeds."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kvcompass.plan.model import RoutingRule
from kvcompass.roles.worker_agent import WorkerAgent
from simulator.convergence import run
from simulator.convergence.bound import bound_terms, bound_us
from simulator.convergence.command import main
from simulator.convergence.faults import FaultKind, draw_schedule
from simulator.convergence.fleet import Fleet
from simulator.convergence.run import run_seed
from simulator.convergence.shape import draw_shape
from simulator.convergence.trace import Trace
from tests.models.convergence_bugs import BUGS

SEEDS = 300
BATCH = 25


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_every_view_is_true_again_within_the_bound(first: int) -> None:
    for seed in range(first, first + BATCH):
        outcome = run_seed(seed)
        assert not outcome.failures, f"python -m simulator.convergence --seed {seed} --trace"
        assert outcome.recovered_us <= outcome.bound_us


def test_what_breaks_beyond_the_bound_is_noticed(monkeypatch) -> None:
    """All is true when the bound is over; then agents renew no more, and leases of live workers end."""
    seed, shape = 0, draw_shape(0)
    fleet = Fleet(shape, seed, Trace(None))
    quiet_us = draw_schedule(seed, shape, len(fleet.victims)).quiet_us
    tight_us = run_seed(seed).recovered_us + 500_000
    monkeypatch.setattr(run, "bound_us", lambda shape: tight_us)
    assert not run_seed(seed).failures
    renew = WorkerAgent.may_renew
    until_us = quiet_us + tight_us
    monkeypatch.setattr(
        WorkerAgent, "may_renew", lambda self, now_us: now_us < until_us and renew(self, now_us)
    )
    failures = run_seed(seed).failures
    assert "beyond its bound" in failures[0]
    assert not any("at its bound" in failure for failure in failures)


def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    assert run_seed(4).digest == run_seed(4).digest != run_seed(5).digest
    program = "from simulator.convergence.run import run_seed; print(run_seed(4).digest)"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, env=environment
    )
    assert other.stdout.strip() == run_seed(4).digest


def test_all_faults_and_all_ways_of_mending_occur() -> None:
    """Otherwise nothing would have been shown."""
    outcomes = [run_seed(seed) for seed in range(100)]
    faults = sum((outcome.faults for outcome in outcomes), start=type(outcomes[0].faults)())
    counts = sum((outcome.counts for outcome in outcomes), start=type(outcomes[0].counts)())
    assert set(faults) == {kind.value for kind in FaultKind} | {"plan change"}
    for way in (
        "full reports",
        "holes in reports",
        "holes in events",
        "leases ended",
        "engine restarts seen",
        "snapshots",
        "subscribers fallen off the log",
        "old groups refused",
        "tables doubled",
        "tables rebuilt",
        "resubscribed: gap",
        "resubscribed: behind",
        "resubscribed: lost",
        "resubscribed: silence",
        "resubscribed: moved",
        "shards fed by edges at the end",
        "units restored",
        "places given again",
        "places that rest",
        "places not acknowledged",
    ):
        assert counts[way], way


@pytest.mark.parametrize("seed", [0, 3])
def test_the_bound_grows_with_what_it_is_made_of(seed: int) -> None:
    shape = draw_shape(seed)
    assert bound_us(shape) < sum(bound_terms(shape).values())
    long_lease = replace(shape, plan=replace(shape.plan, routing=RoutingRule(lease_ms=30_000)))
    assert bound_us(long_lease) >= bound_us(shape) + 30_000_000
    slow = replace(shape, bounds=replace(shape.bounds, watermark_period_us=9_000_000))
    assert bound_us(slow) >= bound_us(shape) + 8_000_000
    by_edges, by_units = (replace(shape, upstream=upstream) for upstream in ("edge", "units"))
    assert bound_us(by_edges) > bound_us(by_units)


def test_a_failing_seed_says_how_to_see_it_again(tmp_path, capsys) -> None:
    path = tmp_path / "new" / "convergence.json"
    with BUGS["resync_skipped"].planted():
        assert main(["--seeds", "4", "--json", str(path)]) == 1
    shown = capsys.readouterr().out
    document = json.loads(path.read_text("utf-8"))
    assert document["failed"] == len(document["failures"]) > 0
    for failure in document["failures"]:
        assert failure["replay"] == f"python -m simulator.convergence --seed {failure['seed']} --trace"
        assert failure["replay"] in shown
    assert main(["--seeds", "2", "--json", str(path)]) == 0
    document = json.loads(path.read_text("utf-8"))
    assert document["failed"] == 0
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    assert document["runs"][0]["trace"] == run_seed(0).digest


def test_a_trace_tells_of_faults_and_messages(capsys) -> None:
    assert main(["--seed", "0", "--trace"]) == 0
    shown = capsys.readouterr().out
    for word in ("starts in epoch", "begins", "hello of epoch", "snapshot at", "watermark", "bound = "):
        assert word in shown
