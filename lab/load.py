"""`kvcompass lab load`: the lab's workload against a fleet that is up, wherever it runs."""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from kvcompass.plan.model import Plan
from lab.load_fronts import Fronts
from lab.load_report import Counts, LoadReport, load_report, print_load
from lab.process import LabError
from lab.progress import LabProgress
from lab.record import Record
from lab.replay import replay
from lab.report import error_counts
from lab.run import write_json
from lab.workload.corpus import Corpus
from lab.workload.request import Workload
from lab.workload.schedule import Shape, build_workload
from lab.workload.source import load_corpus
from services.runtime.plan_file import load_plan


@dataclasses.dataclass(frozen=True, slots=True)
class LoadOptions:
    """What `kvcompass lab load` was told."""

    plan: Path
    edges: Mapping[str, str]
    """Region -> URL to send to, where it is not the plan's address of the region's first edge."""
    api_key_file: Path | None
    """None: a key that only an edge in lab mode takes."""
    admin_key_file: Path | None
    """For the edges' own counters; None tries the API key."""
    shape: Shape
    repeat: int
    """Rounds, each with another sequence over the same texts."""
    json_path: Path | None
    """`-` is standard output."""


def run_load(options: LoadOptions, environment: Mapping[str, str]) -> int:
    """Waits for the edges, sends, prints a table, and returns the number of requests that failed.

    Errors: LabError, CorpusError, SettingsError, PlanError.
    """
    to_stdout = options.json_path == Path("-")
    console = Console(stderr=to_stdout)
    plan = load_plan(options.plan)
    fronts = _fronts(plan, options)
    shape = dataclasses.replace(options.shape, region_weights=_weights(options.shape, plan))
    with LabProgress(console) as progress:
        progress.step("writing the workload")
        corpus = load_corpus(environment, shape.seed)
        progress.step("waiting for the edges")
        fronts.wait_ready()
        progress.begin("load", options.repeat * shape.requests)
        records, counts = asyncio.run(_rounds(options.repeat, shape, corpus, plan, fronts, progress))
    report = load_report(plan.regions, records, counts)
    print_load(console, report, _heading(plan, corpus, shape, options.repeat))
    _print_errors(console, records)
    _write(options.json_path, report, records)
    return report.total.errors


async def _rounds(
    repeat: int, shape: Shape, corpus: Corpus, plan: Plan, fronts: Fronts, progress: LabProgress
) -> tuple[list[Record], Mapping[str, Counts] | None]:
    """All rounds, one after the other, and what the edges counted meanwhile."""
    before = await fronts.counts()
    records: list[Record] = []
    for number in range(repeat):
        workload: Workload = build_workload(corpus, dataclasses.replace(shape, seed=shape.seed + number))
        records += await replay(
            workload,
            fronts.base_urls,
            model=plan.model.id,
            time_scale=1.0,
            on_record=progress.advance,
            api_key=fronts.api_key,
        )
    after = await fronts.counts()
    if before is None or after is None:
        return records, None
    return records, {region: after[region] - before[region] for region in after}


def _fronts(plan: Plan, options: LoadOptions) -> Fronts:
    unknown = ", ".join(sorted(set(options.edges) - set(plan.regions)))
    if unknown:
        raise LabError(f"the plan has no region {unknown}; it has {', '.join(plan.regions)}", field="edge")
    urls: dict[str, str] = {}
    for edge in plan.edges:
        urls.setdefault(edge.region, f"http://{edge.address}")
    urls |= {region: url.rstrip("/").removesuffix("/v1") for region, url in options.edges.items()}
    missing = ", ".join(region for region in plan.regions if region not in urls)
    if missing:
        raise LabError(f"the plan has no edge in {missing}: give --edge {missing}=URL", field="edge")
    api_key = _key(options.api_key_file, "api-key-file") or "lab"
    return Fronts(urls, api_key, _key(options.admin_key_file, "admin-key-file") or api_key)


def _key(path: Path | None, field: str) -> str:
    if path is None:
        return ""
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read the key in {path}: {error}", field=field) from error
    if not (key and key.isascii() and key.isprintable()):
        raise LabError(f"{path} is not one line of printable ASCII: put a key there", field=field)
    return key


def _weights(shape: Shape, plan: Plan) -> Mapping[str, float]:
    """Users of each region of the plan: the shape's share where it knows the region, else a fair one."""
    return {region: shape.region_weights.get(region, 1.0 / len(plan.regions)) for region in plan.regions}


def _heading(plan: Plan, corpus: Corpus, shape: Shape, repeat: int) -> str:
    rounds = f"{repeat} rounds of " if repeat > 1 else ""
    return (
        f"Workload: {corpus.source}, seed {shape.seed}: {rounds}{shape.requests} requests in "
        f"{shape.duration_ms / 1e3:g} s, model {plan.model.id}."
    )


def _print_errors(console: Console, records: list[Record]) -> None:
    for message, count in error_counts(records).items():
        console.print(f"[red]{count} x {message}[/red]", soft_wrap=True, highlight=False)


def _write(path: Path | None, report: LoadReport, records: list[Record]) -> None:
    values = {**dataclasses.asdict(report), "records": [dataclasses.asdict(record) for record in records]}
    if path == Path("-"):
        print(json.dumps(values))
    elif path is not None:
        write_json(path, values)
