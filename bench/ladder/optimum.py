"""The best one list could do on a workload that is known beforehand: a bound for every shared list."""

import numpy as np

from bench.ladder.network import Network
from bench.ladder.rules import Rule, shared
from bench.ladder.workload import Workload


def best_list(
    workload: Workload, network: Network, prefill_ms: float, context: int, quantum: int, key_price: float
) -> Rule:
    """The list of multiples of `quantum` that maximises captured share minus `key_price` x keys a prompt.

    By dynamic programming from the longest length down. With lengths a < b next to one another, the requests
    that match at least a and less than b are credited a. Unlike the ladder it has no guard.
    """
    lengths = np.arange(quantum, min(context, int(workload.matched.max()) + 1), quantum)
    at_least = workload.matched.size - np.searchsorted(np.sort(workload.matched), lengths)
    reach = np.append(at_least, 0) / workload.matched.size
    registering = 1 - np.searchsorted(np.sort(workload.prompt), lengths) / workload.prompt.size
    trips = np.array([network.round_trip_ms[pair] for pair in network.pairs()])
    exact = np.maximum(0.0, prefill_ms * workload.matched[:, None] - trips).mean(axis=0)
    worth = (np.maximum(0.0, prefill_ms * lengths[:, None] - trips)[:, exact > 0] / exact[exact > 0]).mean(
        axis=1
    )
    best = np.zeros(lengths.size + 1)
    following = np.full(lengths.size, lengths.size)
    for i in range(lengths.size - 1, -1, -1):
        gains = worth[i] * (reach[i] - reach[i + 1 :]) + best[i + 1 :]
        following[i] = i + 1 + int(gains.argmax())
        best[i] = gains.max() - key_price * registering[i]
    chosen, i = [], int(best.argmax())
    while i < lengths.size:
        chosen.append(int(lengths[i]))
        i = int(following[i])
    return shared("best for this workload", f"price {key_price:g}", chosen)
