"""`kvcompass lab demo`: the same sequence under every policy, each from cold caches, and one table."""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from kvcompass.routing.names import POLICY_NAMES, PolicyName
from lab.ports import LoopbackPorts
from lab.progress import LabProgress
from lab.report import PolicyReport
from lab.run import Run, prepare, print_remarks, run_policy, write_json
from lab.tables import print_facts, print_table
from lab.three_regions import LabOptions, three_regions
from lab.workload.schedule import Shape


def run_demo(
    options: LabOptions,
    shape: Shape,
    ports: LoopbackPorts,
    environment: Mapping[str, str],
    *,
    json_path: Path,
    keep: bool,
) -> None:
    """Runs every policy, prints the table and writes the figures. Errors: LabError, CorpusError."""
    console = Console()
    began = time.monotonic()
    runs: dict[PolicyName, Run] = {}
    with LabProgress(console) as progress:
        workload, facts = prepare(shape, three_regions(options, ports), environment, progress.step)
        for policy in POLICY_NAMES:
            progress.begin(policy, len(workload.requests))
            # A fresh fleet each time: nothing of one policy warms the caches of the next.
            blueprint = three_regions(dataclasses.replace(options, policy=policy), ports)
            runs[policy] = run_policy(
                workload, blueprint, on_step=progress.step, on_record=progress.advance, keep=keep
            )
    reports: dict[str, PolicyReport] = {policy: run.report for policy, run in runs.items()}
    console.print()
    print_facts(console, facts)
    print_table(console, reports)
    for policy, run in runs.items():
        print_remarks(console, policy, run.records)
    write_json(
        json_path,
        {
            "policies": {policy: asdict(report) for policy, report in reports.items()},
            "run": facts.as_json()
            | {
                "by_policy": {policy: run.facts() for policy, run in runs.items()},
                "wall_s": round(time.monotonic() - began, 1),
            },
        },
    )
    console.print(f"Figures: {json_path}. Next: `make lab`, then ask it something.", highlight=False)
