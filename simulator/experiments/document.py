"""What a set of runs found, as JSON, and back."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.experiments.run import Finished
from simulator.experiments.store import figures_from
from simulator.results.rows import Row, Run
from simulator.workloads import Capacity


def provenance(code: str) -> dict[str, Any]:
    """What runs come from beside their inputs: the code's digest (`store.code_digest`) and the machine."""
    return {"code": code, "machine": {"processor": platform.machine(), "cpus": os.cpu_count()}}


def as_json(
    finished: Sequence[Finished],
    rows: Sequence[Row],
    capacities: Mapping[str, Mapping[int, Capacity]],
    failures: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Plain values. `rows` has what tables show, `runs` every figure of every run, and all its inputs.

    Args:
        finished: The runs.
        rows: The same, over their seeds.
        capacities: No-reuse capacities by workload and seed, where loads are multiples of them.
        failures: Names of runs that failed, and why.
    """
    return {
        "no_reuse_capacity": {
            workload: {str(seed): asdict(capacity) for seed, capacity in by_seed.items()}
            for workload, by_seed in capacities.items()
        },
        "rows": rows_as_json(rows),
        "failures": [{"run": name, "because": text} for name, text in failures],
        "runs": [
            {
                "inputs": each.cell.inputs(),
                "source": each.source,
                "wall_s": round(each.wall_s, 3),
                "figures": asdict(each.figures),
            }
            for each in finished
        ],
    }


def rows_as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What tables show, each figure with its interval."""
    return [
        {
            "workload": row.workload,
            "load": row.load,
            "policy": row.policy,
            "is_bound": row.is_bound,
            "seeds": row.seeds,
            "figures": {
                name: None if spread is None else asdict(spread) for name, spread in row.figures.items()
            },
        }
        for row in rows
    ]


def runs_from(document: Mapping[str, Any]) -> list[Run]:
    """Read the runs of a document back, as rows are made of them."""
    bounds = {(row["workload"], row["policy"]) for row in document["rows"] if row["is_bound"]}
    return [
        Run(
            workload=workload,
            load=_load(inputs),
            policy=inputs["policy"],
            seed=inputs["seed"],
            figures=figures_from(run["figures"]),
            is_bound=(workload, inputs["policy"]) in bounds,
        )
        for run in document["runs"]
        for inputs in (run["inputs"],)
        for workload in (Path(inputs["setting"]["workload"]).stem,)
    ]


def _load(inputs: Mapping[str, Any]) -> float:
    if inputs["setting"]["arrivals"] == "closed":
        return float(inputs["setting"]["users"])
    return float(inputs["rate_per_s"] if inputs["load"] is None else inputs["load"])
