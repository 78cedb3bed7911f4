"""One fleet, one replay, one report."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from lab.blueprint import Blueprint
from lab.facts import Facts, gather_facts
from lab.fleet import Fleet
from lab.load_factor import peak_load_factor
from lab.ports import LoopbackPorts
from lab.progress import LabProgress
from lab.record import Record
from lab.replay import OnRecord, replay
from lab.report import PolicyReport, error_counts, lateness, policy_report
from lab.scrape import BusySampler, counter_total
from lab.tables import print_facts, print_table
from lab.three_regions import LabOptions, three_regions
from lab.warm import warm_kernels
from lab.workload.request import Workload
from lab.workload.schedule import Shape, build_workload
from lab.workload.source import load_corpus

LATE_MS = 100.0
"""Model ms by which requests may leave late before the table is called into question."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one policy did with the workload."""

    report: PolicyReport
    records: list[Record]
    wan_bytes: int
    """Bytes that crossed regions, both ways, all kinds of traffic."""

    def facts(self) -> dict[str, object]:
        """What is worth keeping beside the report's figures."""
        return {"wan_bytes": self.wan_bytes, "late_ms": asdict(lateness(self.records))}


def run_policy(
    workload: Workload,
    blueprint: Blueprint,
    *,
    on_step: Callable[[str], None] = lambda _: None,
    on_record: OnRecord = lambda _: None,
    keep: bool = False,
) -> Run:
    """Starts a fleet with cold caches, replays, asks the fleet for its counters and ends it.

    Errors: LabError when a process does not start or did not survive.
    """
    with Fleet(blueprint, on_step=on_step, keep=keep) as fleet:
        on_step("replaying")
        return asyncio.run(_measure(workload, fleet, on_record))


def run_once(
    options: LabOptions,
    shape: Shape,
    ports: LoopbackPorts,
    environment: Mapping[str, str],
    *,
    json_path: Path | None,
    keep: bool,
) -> None:
    """`kvcompass lab run`: one policy, its table, and every record as JSON when asked for."""
    console = Console()
    with LabProgress(console) as progress:
        blueprint = three_regions(options, ports)
        workload, facts = prepare(shape, blueprint, environment, progress.step)
        progress.begin(options.policy, len(workload.requests))
        run = run_policy(workload, blueprint, on_step=progress.step, on_record=progress.advance, keep=keep)
    print_facts(console, facts)
    print_table(console, {options.policy: run.report})
    print_remarks(console, options.policy, run.records)
    if json_path is not None:
        write_json(
            json_path,
            {
                "policies": {options.policy: asdict(run.report)},
                "run": facts.as_json() | {"by_policy": {options.policy: run.facts()}},
                "records": [asdict(record) for record in run.records],
            },
        )


def prepare(
    shape: Shape, blueprint: Blueprint, environment: Mapping[str, str], on_step: Callable[[str], None]
) -> tuple[Workload, Facts]:
    """Compiles what must be compiled, writes the workload and counts what it shares."""
    on_step("loading kernels")
    warm_kernels()
    on_step("writing and counting the workload")
    workload = build_workload(load_corpus(environment, shape.seed), shape)
    return workload, gather_facts(workload, blueprint.plan, blueprint.time_scale)


def print_remarks(console: Console, policy: str, records: list[Record]) -> None:
    """The errors that clients saw, and whether the machine kept up with the plan."""
    for message, count in error_counts(records).items():
        console.print(f"[red]{policy}: {count} x {message}[/red]", soft_wrap=True, highlight=False)
    late = lateness(records)
    if late.p95 > LATE_MS:
        console.print(
            f"[yellow]{policy}: this machine was too busy: 5 % of the requests left {late.p95:,.0f} ms late "
            "or more, and times are longer than the fleet's.[/yellow]",
            soft_wrap=True,
            highlight=False,
        )


def write_json(path: Path, values: Mapping[str, object] | Sequence[object]) -> None:
    """Writes one JSON file, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n", "utf-8")


async def _measure(workload: Workload, fleet: Fleet, on_record: OnRecord) -> Run:
    blueprint = fleet.blueprint
    plan = blueprint.plan
    edges = [blueprint.ops_addresses[edge.id] for edge in plan.edges]
    sampler = BusySampler({worker.id: worker.url for worker in plan.workers}, blueprint.time_scale)
    async with _running(sampler.run()):
        records = await replay(
            workload,
            fleet.base_urls,
            model=plan.model.id,
            time_scale=blueprint.time_scale,
            on_record=on_record,
        )
    await sampler.sample()
    report = policy_report(
        records,
        cross_region_hits=await counter_total(edges, "kvcompass_edge_cross_region_hits_total"),
        wrong_claims=await counter_total(edges, "kvcompass_edge_wrong_claims_total"),
        peak_load_factor=peak_load_factor(sampler.samples),
    )
    fleet.check()
    return Run(report, records, fleet.wan_bytes())


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `work` within the block. Errors: those of `work`, at the block's end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
