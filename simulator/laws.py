"""What must hold after every run: nothing lost, nothing invented, no effect before its cause."""

from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import SimulationError
from simulator.router import Checked

if TYPE_CHECKING:
    from simulator.world import World


def check_laws(world: "World") -> None:
    """Check a run that has ended.

    Raises:
        SimulationError: A law is broken; the message names every one that is.
    """
    broken = [*_requests(world), *_causality(world), *_tokens(world), *_blocks(world)]
    if isinstance(world.router, Checked):
        broken += world.router.broken_laws()
    if broken:
        raise SimulationError(f"a run broke the laws: {'; '.join(broken)}", field="laws")


def _requests(world: "World") -> list[str]:
    """Each that arrived has ended once, well or badly."""
    records = world.records
    failed = int((records.column("worker") < 0).sum())
    ended = int((records.column("finished_us") > 0).sum())
    if (failed, failed + ended) == (records.failed, records.rows) and records.done == records.rows:
        return []
    return [
        f"{records.rows} requests arrived, {records.failed} failed ({failed} by the records), {ended} ended"
    ]


def _causality(world: "World") -> list[str]:
    """Arrival, engine, first token, end, with at least the way between them."""
    records = world.records
    worker = records.column("worker")
    well = worker >= 0
    arrived, submitted, first, finished = (
        records.column(name)[well] for name in ("arrived_us", "submitted_us", "first_token_us", "finished_us")
    )
    regions = range(world.fleet.regions)
    least = np.array([[world.network.least_us(a, b) for b in regions] for a in regions])
    origin, place = records.column("region")[well], np.array(world.regions)[worker[well]]
    broken = []
    for what, early in (
        ("reached an engine", submitted < arrived + least[origin, place]),
        ("began to be answered", first < submitted + least[place, origin]),
        ("ended", finished < first),
    ):
        if early.any():
            broken.append(f"{int(early.sum())} requests {what} before they could")
    return broken


def _tokens(world: "World") -> list[str]:
    """What requests were told is what engines did. Less where answers were lost."""
    records = world.records
    worker = records.column("worker")
    well = worker >= 0
    broken = []
    told = {
        name: np.bincount(worker[well], records.column(name)[well], world.fleet.workers).astype(np.int64)
        for name in ("prompt_tokens", "cached_tokens", "cached_host_tokens", "answer_tokens")
    }
    loads = [host.load() for host in world.hosts]
    done = {
        "prompt_tokens": [load.prompt_tokens for load in loads],
        "cached_tokens": [load.cached_tokens for load in loads],
        "cached_host_tokens": [load.cached_host_tokens for load in loads],
        "answer_tokens": [load.generated_tokens for load in loads],
    }
    if world.decoders:
        decoded = sum(host.load().generated_tokens for host in world.decoders.hosts)
        done["answer_tokens"], told["answer_tokens"] = [decoded], told["answer_tokens"].sum(keepdims=True)
    for name, engines in done.items():
        counted = np.array(engines)
        if (counted < told[name]).any() or (not world.lost_answers and (counted != told[name]).any()):
            broken.append(f"engines count {counted.sum()} {name}, requests {told[name].sum()}")
    if (told["cached_tokens"] > told["prompt_tokens"]).any():
        broken.append("more tokens were reused than asked for")
    return broken


def _blocks(world: "World") -> list[str]:
    """Idle engines hold nothing but what their caches hold, and what they have told."""
    broken = []
    for worker, host in enumerate(world.hosts):
        cache, load = host.engine.cache, host.load()
        idle = load.running == 0 and load.waiting == 0
        if cache.free_blocks + cache.resident_blocks != cache.capacity_blocks and idle:
            broken.append(
                f"worker {worker}: {cache.free_blocks} free and {cache.resident_blocks} resident blocks of"
                f" {cache.capacity_blocks}"
            )
        if cache.locked_blocks and idle:
            broken.append(f"worker {worker}: {cache.locked_blocks} blocks locked by nobody")
        told = host.told_blocks
        held = {"GPU": cache.resident_blocks, "CPU_PINNED": cache.dram_blocks}
        if any(told.get(medium, 0) != count for medium, count in held.items()):
            broken.append(f"worker {worker}: holds {held} blocks, and its events say {dict(told)}")
    return broken
