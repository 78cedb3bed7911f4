"""Many seeds, in a few processes, and what they came to."""

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from simulator.convergence.bound import FORMULA
from simulator.convergence.run import Outcome, run_seed

_CHUNK = 8
"""Seeds given to a process at a time."""


def replay_command(seed: int) -> str:
    """What shows a seed's run again, line by line."""
    return f"python -m simulator.convergence --seed {seed} --trace"


def run_seeds(seeds: Sequence[int], jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds, as they come."""
    if jobs == 1:
        for seed in seeds:
            yield run_seed(seed)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        yield from pool.imap(run_seed, seeds, _CHUNK)


def totals(outcomes: Iterable[Outcome], kind: str) -> Counter[str]:
    """Sum over runs of `faults` or `counts`."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(getattr(outcome, kind))
    return total


def nearest(outcomes: Sequence[Outcome]) -> Outcome:
    """The run that took the largest share of its bound."""
    return max(outcomes, key=lambda outcome: outcome.recovered_us / outcome.bound_us)


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Plain values. The same seeds give the same document."""
    worst = nearest(outcomes)
    return {
        "bound": FORMULA,
        "seeds": len(outcomes),
        "first": outcomes[0].seed,
        "failed": sum(bool(outcome.failures) for outcome in outcomes),
        "nearest_to_bound": {
            "seed": worst.seed,
            "recovered_s": _s(worst.recovered_us),
            "bound_s": _s(worst.bound_us),
        },
        "faults": dict(sorted(totals(outcomes, "faults").items())),
        "counts": dict(sorted(totals(outcomes, "counts").items())),
        "failures": [
            {"seed": outcome.seed, "replay": replay_command(outcome.seed), "what": list(outcome.failures)}
            for outcome in outcomes
            if outcome.failures
        ],
        "runs": [
            {
                "seed": outcome.seed,
                "lossy": outcome.lossy,
                "recovered_s": _s(outcome.recovered_us),
                "bound_s": _s(outcome.bound_us),
                "trace": outcome.digest,
            }
            for outcome in outcomes
        ],
    }


def _s(us: int) -> float:
    return round(us / 1e6, 3)
