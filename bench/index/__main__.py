"""The index, measured: editing, applying, copying, looking up, deciding; bits an entry and false hits.

python -m bench.index --json out/bench/index.json                 1e7 entries, some minutes, 8 GiB
python -m bench.index --quick                                     the same at 2e5
python -m bench.index --view-only 1e9 --written 2e8               a view of 1e9 entries, 12 GiB

Figures are of the machine as it is: run it on a quiet one. docs/reproduction/index.md is written from the
JSON of a whole run and of a view of 1e9 entries:

python -m bench.index --write-docs out/bench/index.json out/bench/view.json
"""

import argparse
import json
import os
import platform
from pathlib import Path

from bench.index import baselines, bulk, decision, document, growth, layouts, view_only
from bench.index.edits import OneTable
from bench.index.fleet import fleet
from bench.index.results import Results
from bench.index.timing import CLOCKS, use_clock
from kvcompass.warm import warm

QUICK = 200_000
AT_MOST = 1_000_000
"""Entries where more would show nothing new."""
FLEETS = ((8, 64), (16, 128), (64, 1_024))
"""Regions and workers; the first is the paper's."""


def measure(entries: int) -> Results:
    """Every measure."""
    results = Results()
    OneTable(entries, results).run()
    for regions, workers in FLEETS:
        one = fleet(regions, workers, entries)
        first = (regions, workers) == FLEETS[0]
        name = f"{regions}x{workers}"
        decision.measure(one, name, results, *(("decision_us",) if first else ()), f"decisions.{name}")
        if first:
            decision.lookup_48(one, results)
            decision.cold(one, results)
    layouts.measure(min(entries, AT_MOST), results)
    growth.measure(entries, results)
    bulk.measure(entries, results)
    baselines.measure(entries, results)
    return results


def _count(text: str) -> int:
    """An integer, also as 1e7."""
    return int(float(text))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=_count, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} entries")
    parser.add_argument("--view-only", type=_count, metavar="ENTRIES")
    parser.add_argument("--write-docs", type=Path, nargs="+", metavar="JSON", help="no run: document these")
    parser.add_argument("--written", type=_count, default=1, help="with --view-only: really insert so many")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: on a shared machine")
    options = parser.parse_args()
    if options.write_docs:
        document.write([json.loads(file.read_text("utf-8")) for file in options.write_docs])
        return
    use_clock(options.clock)
    warm()
    entries = options.view_only or (QUICK if options.quick else options.entries)
    if options.view_only:
        results = Results()
        view_only.measure(entries, options.written, results)
    else:
        results = measure(entries)
    print(results.table())
    if options.json:
        machine = {"processor": platform.machine(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
        found = {"entries": entries, "clock": options.clock, "machine": machine} | results.json
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
