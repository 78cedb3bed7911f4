"""What follows from a plan, as tables."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cli.consoles import wide_console
from kvcompass.levels import clipped_lengths, first_length, query_plan, registered_lengths
from kvcompass.plan.layout import layout_digest, layout_fields
from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.sections import UNASSIGNED

_PROMPTS: Final = (1_024, 4_096, 16_384)


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """Print a plan and everything derived from it. Piped output is not folded to a terminal's width."""
    console = console or wide_console()
    for part in (
        _summary(plan),
        _matrix(plan, "One-way WAN latency, ms (from row to column)", lambda o, r: f"{plan.wan_ms[o][r]:g}"),
        _matrix(
            plan,
            "first_length / first rung queried / guard_length (tokens, from row to column)",
            _lengths(plan),
        ),
        _ladder(plan),
        _keys_per_prompt(plan),
        _shards(plan),
        _edges(plan),
        _workers(plan),
        *_clipped(plan),
    ):
        console.print(part)
        console.print()


def _summary(plan: Plan) -> Group:
    rows = (
        ("fleet", plan.fleet),
        ("plan_version", plan.plan_version),
        ("layout_digest", layout_digest(layout_fields(plan)).hex()),
        ("model", plan.model.id),
        ("tokenizer", plan.model.tokenizer),
        ("chat_template", plan.model.chat_template),
        ("block_size", f"{plan.model.block_size} tokens"),
        ("context_length", f"{plan.model.context_length} tokens"),
        ("sharing groups", ", ".join(group.id for group in plan.sharing_groups)),
    )
    return _table("Plan", ("", ""), rows)


def _matrix(plan: Plan, title: str, cell: Callable[[int, int], str]) -> Group:
    regions = range(len(plan.regions))
    rows = ((origin, *(cell(o, r) for r in regions)) for o, origin in enumerate(plan.regions))
    return _table(title, ("", *plan.regions), rows)


def _lengths(plan: Plan) -> Callable[[int, int], str]:
    queries = query_plan(plan)

    def cell(origin: int, region: int) -> str:
        claims = queries.rungs[queries.queried[origin, region]]
        guard = int(queries.guard[origin, region])
        lowest = str(claims[0]) if len(claims) else "-"
        below = str(queries.rungs[guard]) if guard >= 0 else "-"
        return f"{first_length(plan, origin, region)} / {lowest} / {below}"

    return cell


def _ladder(plan: Plan) -> Group:
    lengths = registered_lengths(plan)
    title = f"Registered lengths, policy {plan.lengths.policy}: {len(lengths)}"
    return _table(title, ("tokens",), ((", ".join(map(str, lengths)),),))


def _keys_per_prompt(plan: Plan) -> Group:
    queries = query_plan(plan)
    read = queries.queried.copy()
    for o, r in zip(*np.nonzero(queries.guard >= 0), strict=True):
        read[o, r, queries.guard[o, r]] = True
    rows = []
    for tokens in _PROMPTS:
        computed = queries.rungs < tokens
        reads = (read & computed).sum(axis=(1, 2))
        rows.append(
            (
                f"{tokens:,}",
                int((queries.rungs <= tokens).sum()),
                int(computed.sum()),
                f"{reads.min()}-{reads.max()}",
            )
        )
    header = ("prompt, tokens", "keys a worker registers", "keys an edge computes", "entries an edge reads")
    return _table("Keys per prompt", header, rows)


def _shards(plan: Plan) -> Group:
    rows = (
        (
            unit.shard,
            f"{unit.shard}/{plan.shards} - {unit.shard + 1}/{plan.shards}",
            unit.id,
            unit.region,
            unit.address,
        )
        for unit in sorted(plan.units, key=lambda unit: unit.shard)
    )
    return _table("Shards", ("shard", "part of the keys", "maintenance unit", "region", "address"), rows)


def _edges(plan: Plan) -> Group:
    rows = ((edge.id, edge.region, edge.address, edge.peer_address, edge.grpc_address) for edge in plan.edges)
    return _table("Edges", ("edge", "region", "address", "peer_address", "grpc_address"), rows)


def _workers(plan: Plan) -> Group:
    rows = (
        (
            worker.id,
            worker.region,
            "unassigned" if worker.table == UNASSIGNED else f"{worker.table} / {worker.slot}",
            worker.url if worker.dp_rank is None else f"{worker.url} rank {worker.dp_rank}",
            f"{worker.prefill_ms_per_token:g}",
            f"{worker.reload_ms_per_token:g}",
            _context_rate(worker),
            worker.sharing_group,
            worker.holdings,
            "yes" if worker.drain else "",
        )
        for worker in plan.workers
    )
    header = (
        "worker",
        "region",
        "table / slot",
        "url",
        "prefill ms/token",
        "reload ms/token",
        "decode ms/context token",
        "sharing group",
        "holdings",
        "drained",
    )
    return _table("Workers", header, rows)


def _context_rate(worker: Worker) -> str:
    told = "" if worker.decode_ms_per_context_token is not None else " (by reload)"
    return f"{worker.context_ms_per_token:.3g}{told}"


def _clipped(plan: Plan) -> Iterable[Group]:
    rows = [
        (entry.origin, entry.region, ", ".join(map(str, entry.lengths)), "yes" if entry.unreachable else "no")
        for entry in clipped_lengths(plan)
    ]
    if rows:
        title = f"Lengths clipped by the context of {plan.model.context_length} tokens"
        yield _table(title, ("from", "to", "clipped, tokens", "nothing left to query"), rows)


def _table(title: str, header: Iterable[str], rows: Iterable[Iterable[object]]) -> Group:
    header = tuple(header)
    table = Table(show_header=any(header))
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return Group(Text(title, style="bold"), table)
