"""Choose the ladder by measurement: captured savings per registered key, under any workload and network.

python -m bench.ladder --json out/bench/ladder.json
python -m bench.ladder --matches mine.jsonl --wan mine.csv --prefill-ms 0.085

The Mooncake trace and the texts of Mixed are read from the folder that KVCOMPASS_DATA names; without it both
are made up, and say so. A matches file has a line {"prompt_tokens": 900, "matched_tokens": 512} a request; a
WAN file is a CSV of round trips in ms with region names in the first row and column.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

from bench.ladder.document import write
from bench.ladder.figure import svg
from bench.ladder.mixed import mixed
from bench.ladder.mooncake import mooncake, within_blocks
from bench.ladder.network import Network, by_distance, cloudping, from_file, paper_testbed
from bench.ladder.results import as_json, run
from bench.ladder.sweep import Setting
from bench.ladder.synthetic import chat, mixed_like, mooncake_like
from bench.ladder.table import screen
from bench.ladder.workload import Workload

TRACE = Path("traces/mooncake_conversation_trace.jsonl")
CLOUDPING = Path("latency/cloudping_p50_1y_2025-05-29.json")
AZURE = Path("latency/azure_inter_region_p50.csv")


def workloads(folder: Path | None, files: list[Path]) -> list[Workload]:
    """The given ones, or Mooncake, Mixed and chat."""
    if files:
        return [matches(file) for file in files]
    trace = mooncake(folder / TRACE) if folder else mooncake_like()
    return [trace, within_blocks(trace), mixed(folder) if folder else mixed_like(), chat()]


def matches(file: Path) -> Workload:
    """A workload from a matches file."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line]
    prompt = np.array([row["prompt_tokens"] for row in rows], np.int64)
    matched = np.array([row["matched_tokens"] for row in rows], np.int64)
    if not rows or (matched < 0).any() or (matched >= prompt).any() or not matched.any():
        raise SystemExit(f"{file}: every line needs 0 <= matched_tokens < prompt_tokens, and one a match")
    return Workload(file.stem, file.name, prompt, matched)


def networks(folder: Path | None, file: Path | None) -> list[Network]:
    """The one that the averages are over, then those to compare."""
    if file:
        return [from_file(file)]
    if folder is None:
        return [by_distance(), paper_testbed()]
    eight, more = (
        cloudping(folder / CLOUDPING, 8),
        [cloudping(folder / CLOUDPING, count) for count in (16, 32)],
    )
    return [eight, eight.halved(), *more, from_file(folder / AZURE), paper_testbed()]


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--matches", type=Path, action="append", default=[], help="instead of the workloads")
    parser.add_argument("--wan", type=Path, help="instead of the networks")
    parser.add_argument("--prefill-ms", type=float, default=0.073, help="per token; default an A100's")
    parser.add_argument("--context", type=int, default=131_072, help="tokens; longer lengths are clipped")
    parser.add_argument("--json", type=Path, help="also writes the plot beside it, as .svg")
    parser.add_argument("--write-docs", action="store_true", help="write docs/reproduction/ladder.md")
    options = parser.parse_args()
    named = os.environ.get("KVCOMPASS_DATA")
    folder = Path(named) if named else None
    if options.write_docs and (folder is None or options.matches or options.wan):
        parser.error(
            "the document is written from the real trace and latencies: set KVCOMPASS_DATA, give no file"
        )
    network, *others = networks(folder, options.wan)
    setting = Setting(network, options.prefill_ms, options.context)
    results = run(setting, workloads(folder, options.matches), others)
    print(screen(results))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(results), indent=2) + "\n")
        options.json.with_suffix(".svg").write_text(svg(results))
    if options.write_docs:
        write(results)


if __name__ == "__main__":
    main()
