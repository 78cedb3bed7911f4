"""Captured savings: what a list of lengths credits, as a share of what exact matches would save.

A match of m tokens in a region whose round trip is t saves max(0, beta m - t) ms of prefill. A list credits m
with its longest length c <= m and captures max(0, beta c - t). Both are summed over a workload's requests;
their ratio is taken for each ordered pair of regions and averaged over the pairs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.ladder.network import Network
from bench.ladder.rules import Lengths, Rule
from bench.ladder.workload import Workload


@dataclass(frozen=True, slots=True)
class Captured:
    """What one rule does for one workload."""

    share: float
    """Of exact-match savings, mean over the ordered pairs of different regions."""
    least: float
    """Of the worst pair."""
    own: float
    """In the own region, where the round trip is nothing."""
    saved_ms: float
    """A request, mean over the pairs."""
    keys: float
    """That a worker registers for a prompt, mean over the requests."""


def measure(rule: Rule, workload: Workload, network: Network, prefill_ms: float) -> Captured:
    """Weigh one rule. Pairs toward which nothing could be saved are left out."""
    matches, requests = workload.histogram()
    shares, saved = [], []
    for o, r in network.pairs():
        trip = float(network.round_trip_ms[o, r])
        exact = savings_ms(matches, prefill_ms, trip) @ requests
        if exact > 0:
            got = savings_ms(credited(matches, rule.queried(o, r)), prefill_ms, trip) @ requests
            shares.append(got / exact)
            saved.append(got / workload.matched.size)
    own = credited(matches, rule.queried(0, 0)) @ requests / (matches @ requests)
    return Captured(
        share=float(np.mean(shares)),
        least=float(np.min(shares)),
        own=float(own),
        saved_ms=float(np.mean(saved)),
        keys=float(np.searchsorted(rule.registered, workload.prompt, side="right").mean()),
    )


def exact_saved_ms(workload: Workload, network: Network, prefill_ms: float) -> float:
    """Milliseconds a request that exact matches would save, mean over the pairs."""
    trips = [float(network.round_trip_ms[pair]) for pair in network.pairs()]
    return float(np.mean([savings_ms(workload.matched, prefill_ms, trip).mean() for trip in trips]))


def credited(matches: NDArray[np.int64], lengths: Lengths) -> NDArray[np.int64]:
    """The longest of `lengths` (ascending) within each match; 0 where there is none."""
    return np.concatenate(([0], lengths))[np.searchsorted(lengths, matches, side="right")]


def savings_ms(matches: NDArray[np.int64], prefill_ms: float, round_trip_ms: float) -> NDArray[np.float64]:
    """Prefill saved, net of the round trip; never negative, as nobody would cross for it."""
    return np.maximum(0.0, matches * prefill_ms - round_trip_ms)
