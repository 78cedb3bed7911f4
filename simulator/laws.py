"""What must hold after every run: nothing lost, nothing invented, no effect before its cause."""

from typing import TYPE_CHECKING, Final

import numpy as np

from simulator.errors import SimulationError
from simulator.router import Checked

if TYPE_CHECKING:
    from simulator.world import World

_ROUNDED_US: Final = 2
"""An engine that computes in chunks rounds where iterations begin and end, what is added up here once."""


def check_laws(world: "World") -> None:
    """Check a run that has ended.

    Raises:
        SimulationError: A law is broken; the message names every one that is.
    """
    broken = [*_requests(world), *_causality(world), *_prefills(world), *_tokens(world), *_blocks(world)]
    if isinstance(world.router, Checked):
        broken += world.router.broken_laws()
    if broken:
        raise SimulationError(f"a run broke the laws: {'; '.join(broken)}", field="laws")


def _requests(world: "World") -> list[str]:
    """Each has failed or has a complete answer, and never both."""
    records = world.records
    failed, ended = records.column("worker") < 0, records.column("finished_us") > 0
    broken = []
    if (failed == ended).any():
        broken.append(f"{int((failed == ended).sum())} requests failed and ended, or did neither")
    if failed.sum() != records.failed:
        broken.append(f"{records.failed} requests failed, {int(failed.sum())} by the records")
    return broken


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


def _prefills(world: "World") -> list[str]:
    """An engine reuses whole blocks and computes the last token at least, and no answer begins sooner."""
    records, fleet = world.records, world.fleet
    names = ("worker", "region", "submitted_us", "first_token_us")
    counts = ("prompt_tokens", "cached_tokens", "cached_host_tokens")
    columns = [records.column(name).tolist() for name in (*names, *counts)]
    too_soon = too_much = 0
    for worker, origin, submitted_us, first_us, prompt, cached, host in zip(*columns, strict=True):
        if worker < 0:
            continue
        engine = fleet.engines[worker]
        timing = engine.timing
        prefill_us = timing.prefill_us(cached, prompt - cached) + timing.reload_us(host)
        back_us = world.network.least_us(world.regions[worker], origin)
        too_soon += first_us - back_us - submitted_us < prefill_us - _ROUNDED_US
        too_much += not 0 <= host <= cached < prompt or cached % engine.page_size != 0
    broken = []
    if too_soon:
        broken.append(f"{too_soon} answers began before their prompts could be computed")
    if too_much:
        broken.append(f"{too_much} requests reused what is no whole block of their prompts")
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
    return broken


def _blocks(world: "World") -> list[str]:
    """Idle engines hold nothing but what their caches hold, and what they have told."""
    broken = []
    for worker, host in enumerate(world.hosts):
        cache, load = host.engine.cache, host.load()
        if load.running or load.waiting:
            continue  # Its answers do not get home; what it holds changes, and is told now and then.
        if cache.free_blocks + cache.resident_blocks != cache.capacity_blocks:
            broken.append(
                f"worker {worker}: {cache.free_blocks} free and {cache.resident_blocks} resident blocks of"
                f" {cache.capacity_blocks}"
            )
        if cache.locked_blocks:
            broken.append(f"worker {worker}: {cache.locked_blocks} blocks locked by nobody")
        told = host.told_blocks
        held = {"GPU": cache.resident_blocks, "CPU_PINNED": cache.dram_blocks}
        if any(told.get(medium, 0) != count for medium, count in held.items()):
            broken.append(f"worker {worker}: holds {held} blocks, and its events say {dict(told)}")
    return broken
