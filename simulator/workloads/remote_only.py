"""How many reusable prefixes only another region holds, by a trace alone (paper, Appendix D).

The paper assigns each conversation to one of 16 North-American regions in proportion to population, and
replays first turns in order of arrival: a prefix of 1,024 tokens is cold, cached in the region itself, or
cached only in others, over 20 seeds. Its regions and their weights are not published; neither is how first
turns were told apart in a trace without session ids. Here: the largest metropolitan areas, and the rule of
`Sessions`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.streams import random_stream
from simulator.workloads.draw import Draw
from simulator.workloads.traces.hashed import MOONCAKE_BLOCK
from simulator.workloads.traces.row import json_rows
from simulator.workloads.traces.sessions import Sessions

PREFIX_TOKENS: Final = 1_024
SEEDS: Final = 20
METROS: Final = {
    "New York": 19.5,
    "Los Angeles": 12.8,
    "Chicago": 9.3,
    "Dallas": 8.1,
    "Houston": 7.5,
    "Toronto": 6.8,
    "Washington": 6.3,
    "Atlanta": 6.3,
    "Philadelphia": 6.2,
    "Miami": 6.2,
    "Phoenix": 5.1,
    "Boston": 4.9,
    "Riverside": 4.7,
    "San Francisco": 4.6,
    "Montreal": 4.5,
    "Detroit": 4.3,
}
"""The 16 largest metropolitan areas of the United States and Canada, in millions (US Census Bureau and
Statistics Canada, estimates of 2023, to a tenth)."""
UNIFORM: Final = (1.0,) * len(METROS)


@dataclass(frozen=True, slots=True)
class RemoteOnly:
    """Prefixes by where they were when they were asked for."""

    cold: int
    """Nowhere yet."""
    hits: int
    """Somewhere."""
    remote_share: float
    """Of the hits, those that the request's own region did not hold: mean over the seeds."""
    spread: tuple[float, float]
    """Least and greatest over the seeds."""
    shared_volume: float
    """Of the hits, those on prefixes that were asked for in more than one region: mean over the seeds."""


def first_turn_prefixes(path: Path, *, sessions: bool = True) -> list[int]:
    """Return the prefixes that a trace in Mooncake's form asks for, in order of arrival.

    Args:
        path: Of the trace.
        sessions: Leave out later turns; otherwise every request counts as a conversation's first.

    Returns:
        For each first turn of at least `PREFIX_TOKENS` the id of the block that ends there, which names all
        before it.

    Raises:
        TraceError: With file, line and field.
    """
    known = Sessions(MOONCAKE_BLOCK)
    prefixes = []
    for number, row in enumerate(json_rows(path)):
        at_us = round(1_000 * row.number("timestamp"))
        length, ids = row.integer("input_length", least=1), row.integers("hash_ids")
        root = known.root(number, at_us, ids, length, row.integer("output_length"))
        if length >= PREFIX_TOKENS and (root == number or not sessions):
            prefixes.append(ids[PREFIX_TOKENS // MOONCAKE_BLOCK - 1])
    return prefixes


def remote_only(prefixes: Sequence[int], weights: Sequence[float], seeds: int = SEEDS) -> RemoteOnly:
    """Ask for prefixes one after another, each in a region drawn by weight, and keep all that was asked
    for."""
    runs = [_run(prefixes, weights, seed) for seed in range(seeds)]
    hits = len(prefixes) - len(set(prefixes))
    shares = [remote / hits if hits else 0.0 for remote, _ in runs]
    return RemoteOnly(
        cold=len(set(prefixes)),
        hits=hits,
        remote_share=sum(shares) / seeds,
        spread=(min(shares), max(shares)),
        shared_volume=sum(shared / hits if hits else 0.0 for _, shared in runs) / seeds,
    )


def _run(prefixes: Sequence[int], weights: Sequence[float], seed: int) -> tuple[int, int]:
    """Return the hits that were remote only, and those on prefixes that more than one region asks for."""
    regions = Draw(weights, random_stream(seed, "workload.remote_only"))
    holders: dict[int, set[int]] = {}
    hits: dict[int, int] = {}
    remote = 0
    for prefix in prefixes:
        region = regions.next()
        holding = holders.setdefault(prefix, set())
        if holding:
            hits[prefix] = hits.get(prefix, 0) + 1
            remote += region not in holding
        holding.add(region)
    return remote, sum(count for prefix, count in hits.items() if len(holders[prefix]) > 1)
