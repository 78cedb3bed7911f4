"""What a worker agent costs: processor time and memory for each block, as a process, and how soon edges know.

python -m bench.agent --json out/agent.json                        # three minutes
python -m bench.agent --quick                                      # that it works

`blocks`: a recorded stream of engine events, in arrays of single blocks (SGLang up to 0.5.16) and in maps of
chains (from 0.5.20 on), read and taken in. A block is stored once and nearly always removed once; both are in
the figure. Times are of this thread's processor, medians of passes. `memory`: what a process grows by while
so many blocks become resident, prompts of 2,048 tokens that share their first half in pairs.

`processes`: an engine double, `kvcompass-worker-agent` and `kvcompass-maintenance` on loopback, and an edge's
follower and view in this process. Prompts that nobody has seen are prefilled at the rate; `late` is from the
engine's own time of a batch to the message with which a key of it is in the view. Shares are of one core,
from what the kernel booked for each process; memory is resident. `patch bytes` are those of the stream to the
edge, for each key that became visible there, with withdrawals of as many once the cache is full.

Figures are of the machine as it is: run it on a quiet one. How busy it was is said last: the median time of a
fixed piece of work over its least, which is 1 where nothing else runs.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.agent.blocks import PAGES, BlockCosts, block_costs
from bench.agent.memory import MemoryCosts, memory_costs
from bench.agent.processes import ProcessCosts, process_costs
from bench.tables import plain
from bench.yardstick import yardsticks_us

RATE = 2_000
"""Blocks a second that are promised."""
RUNS = ((16, "0.5.23"), (16, "0.5.10"), (64, "0.5.23"))
"""Tokens a block, and the version of SGLang that the double plays."""
AIMS = {"agent_share": 0.03, "agent_mb": 150, "late_p99_ms": 20}
"""What each of a run's figures is to be at most."""

_WORKS = 1_000


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=RATE, help="blocks/s of the processes [%(default)s]")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured of the processes [%(default)g]")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--no-processes", action="store_true", help="blocks and memory alone")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size = 10 if options.quick else 1
    works = yardsticks_us(_WORKS)
    blocks = [each for page in PAGES for each in block_costs(page, requests=900 // size)]
    memory = [memory_costs(page, blocks=100_000 // size) for page in PAGES]
    processes = []
    if not options.no_processes:
        processes = [
            process_costs(page, version, options.rate, options.seconds / size)
            for page, version in RUNS[: 1 if options.quick else None]
        ]
    works += yardsticks_us(_WORKS)
    slowdown = median(works) / min(works)
    print(_blocks_table(blocks), _memory_table(memory), _processes_table(processes), sep="\n\n")
    for line in _missed(processes):
        print(line)
    print(f"\nthe machine was busy: everything took {slowdown:.1f} times as long as it need")
    if options.json:
        machine = {"processor": platform.machine(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
        machine["slowdown"] = slowdown
        document = {
            "machine": machine,
            "aims": AIMS,
            "blocks": [asdict(each) for each in blocks],
            "memory": [asdict(each) for each in memory],
            "processes": [asdict(each) for each in processes],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def _missed(found: list[ProcessCosts]) -> list[str]:
    """A line for each aim that a run missed."""
    return [
        f"aim missed: {each.page}, {each.version}: {name} is {value:.3g}, and {most:g} is aimed at"
        for each in found
        for name, most in AIMS.items()
        if (value := getattr(each, name)) > most
    ]


def _blocks_table(found: list[BlockCosts]) -> str:
    head = ("tokens a block, form", "blocks/s", "read, us", "taken in, us", f"share at {RATE:,}/s", "bytes")
    rows = [
        (
            f"{each.page}, {each.form}",
            f"{each.blocks_per_s:,.0f}",
            f"{each.read_us:.2f}",
            f"{each.taken_us:.2f}",
            f"{RATE / each.blocks_per_s:.2%}",
            f"{each.payload_bytes:.0f}",
        )
        for each in found
    ]
    return plain(head, rows)


def _memory_table(found: list[MemoryCosts]) -> str:
    head = ("tokens a block", "resident blocks", "bytes a block", "of them tokens", "keys")
    rows = [
        (
            f"{each.page}",
            f"{each.blocks:,}",
            f"{each.bytes_per_block:.0f}",
            f"{each.token_bytes}",
            f"{each.keys:,}",
        )
        for each in found
    ]
    return plain(head, rows)


def _processes_table(found: list[ProcessCosts]) -> str:
    head = (
        "tokens a block, SGLang",
        "blocks/s",
        "keys/s",
        "agent, of a core",
        "idle",
        "agent, MB",
        "late P50, ms",
        "P99",
        "unit, of a core",
        "patch bytes a key",
    )
    rows = [
        (
            f"{each.page}, {each.version}",
            f"{each.blocks_per_s:,.0f}",
            f"{each.keys_per_s:,.0f}",
            f"{each.agent_share:.2%}",
            f"{each.agent_idle_share:.2%}",
            f"{each.agent_mb:.0f}",
            f"{each.late_p50_ms:.1f}",
            f"{each.late_p99_ms:.1f}",
            f"{each.unit_share:.2%}",
            f"{each.patch_bytes_per_key:.0f}",
        )
        for each in found
    ]
    return plain(head, rows)


if __name__ == "__main__":
    main()
