"""What a trace in Mooncake's form could reuse at best, and how much of it only across regions.

python -m simulator.experiments.trace_reuse mooncake_conversation_trace.jsonl --json out/trace-reuse.json

Ideal reuse is that of one endless cache for the whole world. The second table is the paper's Appendix D.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from kvcompass.errors import KVCompassError
from simulator.fleets import load_fleet
from simulator.results.table import wide
from simulator.workloads import WorkloadOptions, build_source
from simulator.workloads.remote_only import (
    METROS,
    PREFIX_TOKENS,
    SEEDS,
    UNIFORM,
    RemoteOnly,
    first_turn_prefixes,
    remote_only,
)
from simulator.workloads.reuse import EndlessCache, Reuse
from simulator.workloads.traces.hashed import MOONCAKE_BLOCK

_PLACES: Final = load_fleet("paper-64")
"""Only names regions: reuse of one cache does not depend on them."""


def ideal(trace: Path, block_size: int = MOONCAKE_BLOCK) -> Reuse:
    """Return what a cache without end reuses of a trace, in blocks of so many tokens.

    Raises:
        SimulationError: With file, line and field.
    """
    cache = EndlessCache(block_size)
    options = WorkloadOptions()
    source = build_source(
        str(trace), fleet=_PLACES, rate_per_s=1.0, seed=1, arrivals="recorded", options=options
    )
    while (request := source.next()) is not None:
        cache.ask(request.prompt)
    return cache.reuse


def across_regions(trace: Path) -> dict[str, RemoteOnly]:
    """Return Appendix D's figures under each way to draw regions and to tell first turns.

    Raises:
        TraceError: With file, line and field.
    """
    first, every = first_turn_prefixes(trace), first_turn_prefixes(trace, sessions=False)
    people = list(METROS.values())
    return {
        "first turns, 16 metros by population": remote_only(first, people),
        "first turns, 16 regions alike": remote_only(first, UNIFORM),
        "every turn, 16 metros by population": remote_only(every, people),
        "every turn, 16 regions alike": remote_only(every, UNIFORM),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 2 where the trace cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.experiments.trace_reuse",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "trace", type=Path, help="JSONL with timestamp, input_length, output_length, hash_ids"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    console = Console()
    wide(console)
    try:
        # First what reads no other form, so that a file in another is refused for that.
        regions, reuse = across_regions(options.trace), ideal(options.trace)
    except KVCompassError as error:
        sys.stderr.write(f"trace_reuse: {error}\n")
        return 2
    console.print(
        f"{options.trace.name}: {reuse.requests:,} requests; an endless cache reuses "
        f"{reuse.reused_blocks:,} of {reuse.blocks:,} full blocks of {MOONCAKE_BLOCK} tokens, "
        f"{reuse.ratio:.2%} of all tokens",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(regions))
    if options.json is not None:
        document = {
            "ideal": asdict(reuse),
            "across_regions": {name: asdict(each) for name, each in regions.items()},
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


def _table(regions: dict[str, RemoteOnly]) -> Table:
    table = Table(title=f"Prefixes of {PREFIX_TOKENS:,} tokens, {SEEDS} seeds")
    table.add_column("regions and turns")
    for head in (
        "cold",
        "hits",
        "only in other regions",
        "least to most",
        "hits on prefixes of many regions",
    ):
        table.add_column(head, justify="right")
    for name, found in regions.items():
        low, high = found.spread
        table.add_row(
            name,
            f"{found.cold:,}",
            f"{found.hits:,}",
            f"{found.remote_share:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{found.shared_volume:.1%}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
