"""One run, watched."""

import json
from pathlib import Path

import numpy as np
import pytest

from kvcompass.engine_model import EngineRequest
from simulator.errors import SimulationError
from simulator.experiments.cell import Cell, Setting
from simulator.experiments.policies import POLICIES, policy_named
from simulator.experiments.run import fleet_of, run_cell, source_of, watched_world
from simulator.experiments.watch import PROBE_EVERY, SAMPLE_US
from simulator.results.outcome import columns
from simulator.world import World

SETTING = Setting(fleet="testbed-14", requests=150, warm_up=50)


@pytest.mark.parametrize("policy", ["random", "regional"])
def test_watching_changes_nothing(policy: str) -> None:
    fleet, rival = fleet_of(SETTING), policy_named(policy, faithful=False)
    alone = World(fleet, source_of(SETTING, fleet, 60.0, 5), rival, seed=5)
    watched, _ = watched_world(fleet, source_of(SETTING, fleet, 60.0, 5), rival, seed=5)
    alone.run()
    watched.run()
    before, after = columns(alone.records), columns(watched.records)
    for name, column in before.items():
        assert np.array_equal(column, after[name]), name
    assert alone.network.bytes_sent == watched.network.bytes_sent


def test_samples_are_even_and_what_was_counted_never_falls() -> None:
    fleet = fleet_of(SETTING)
    world, watch = watched_world(
        fleet, source_of(SETTING, fleet, 60.0, 5), policy_named("random", faithful=False), seed=5
    )
    world.run()
    watched = watch.watched()
    assert (np.diff(watched.at_us) == SAMPLE_US).all()
    assert (np.diff(watched.busy_us, axis=0) >= 0).all()
    assert (np.diff(watched.wan_bytes) >= 0).all()
    assert (np.diff(watched.prefill_busy_us) >= 0).all()
    assert watched.prefill_busy_us[-1] > 0
    assert (watched.prefill_busy_us <= watched.busy_us.sum(axis=1)).all()
    assert (np.diff(watched.generated) >= 0).all()
    assert watched.generated[-1] <= columns(world.records)["answer_tokens"].sum()
    assert watched.wan_bytes[-1] > 0
    assert watched.reusable[:, 0].tolist() == list(range(0, 200, PROBE_EVERY))


def test_a_probe_finds_the_longest_prefix_here_and_elsewhere() -> None:
    fleet = fleet_of(SETTING)
    world, watch = watched_world(
        fleet, source_of(SETTING, fleet, 0.001, 5), policy_named("random", faithful=False), seed=5
    )
    request = source_of(SETTING, fleet, 0.001, 5).next()
    assert request is not None
    block = fleet.plan.model.block_size
    assert len(request.prompt) > 3 * block
    here = next(worker for worker in range(fleet.workers) if fleet.region_of(worker) == request.region)
    there = next(worker for worker in range(fleet.workers) if fleet.region_of(worker) != request.region)
    for worker, blocks in ((here, 2), (there, 3)):
        prompt = request.prompt[: blocks * block]
        engine = world.hosts[worker].engine
        engine.submit(EngineRequest("before", prompt, request.answer[:1]), 0)
        engine.advance(request.arrives_us)
        engine.take_progress()
    watch.expect(request)
    world.drain(request.arrives_us)
    assert watch.watched().reusable.tolist() == [[request.id, 2 * block, 3 * block]]


def test_a_workload_that_ends_within_the_warm_up_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"none beyond the warm-up of 50 and 2 s; .*--warm-up 0 "):
        run_cell(
            Cell(Setting(fleet="testbed-14", requests=0, warm_up=50, warm_up_s=2.0), "random", 60.0, None, 1)
        )


def test_a_closed_loop_goes_on_while_its_only_user_thinks() -> None:
    setting = Setting(fleet="testbed-14", requests=8, warm_up=2, arrivals="closed", users=1)
    figures = run_cell(Cell(setting, "random", 0.0, None, 1)).figures
    assert figures.requests == 8
    assert figures.seconds > 5.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_that_no_engine_has_room_for_fails_under_every_policy(policy: str, tmp_path: Path) -> None:
    fleet = fleet_of(SETTING)
    room = fleet.engines[0].cache_tokens
    sizes = (300, room + 1, 300)
    trace = tmp_path / "large.jsonl"
    lines = [{"at_ms": 1_000 * place, "prompt": [size], "answer": 20} for place, size in enumerate(sizes)]
    trace.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    setting = Setting(
        fleet="testbed-14", workload=str(trace), requests=3, warm_up=0, arrivals="recorded", tenants=0
    )
    figures = run_cell(Cell(setting, policy, 1.0, None, 1)).figures
    assert (figures.requests, figures.failed) == (3, 1)
    assert figures.recomputed_tokens == 600
