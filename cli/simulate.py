"""`kvcompass simulate`: policies on a virtual clock. The simulator is imported only when it is wanted."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from kvcompass.errors import KVCompassError
from lab.interrupts import interruptible

_OPTIONS: Final = {
    "fleet": "--fleet",
    "workload": "--workload",
    "policy": "--policy",
    "arrivals": "--arrivals",
    "rate_per_s": "--rate",
    "load": "--load",
    "seed": "--seed",
    "warm-up": "--warm-up",
    "out-dir": "--out-dir",
    "json": "--json",
    "png": "--png",
    "KVCOMPASS_DATA": "--data",
    "tokenizer": "--tokenizer",
    "jobs": "--jobs",
}
"""The option behind a field that an error names."""


def add_arguments(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `simulate`."""
    parser = commands.add_parser(
        "simulate",
        help="compare routing policies on a virtual clock, in minutes, on one machine",
        description="Runs requests of a workload through a fleet of simulated engines, under the product's "
        "own routing and under others'. docs/simulator.md explains every option and figure.",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the names of fleets, workloads and policies, and exit"
    )
    parser.add_argument("--fleet", default="paper-64", help="a fleet's name or a plan's .toml [%(default)s]")
    parser.add_argument("--workload", default="mixed", help="a workload's name or a file [%(default)s]")
    parser.add_argument(
        "--policy",
        nargs="+",
        default=["kvcompass"],
        metavar="P",
        help="one or several, or `all`; the same requests for each [kvcompass]",
    )
    much = parser.add_argument_group("how much is asked")
    much.add_argument(
        "--load",
        nargs="+",
        type=_positive,
        metavar="X",
        help="multiple of the fleet's no-reuse capacity; with --sweep several [0.9]",
    )
    much.add_argument(
        "--rate", type=_positive, metavar="N", help="requests/s of the whole fleet, in place of it"
    )
    much.add_argument(
        "--arrivals",
        choices=("poisson", "bursty", "recorded", "closed"),
        default="poisson",
        help="how requests follow one another; `recorded`: at a trace's own instants, and its own speed "
        "unless --load or --rate say otherwise [%(default)s]",
    )
    much.add_argument("--users", type=_count, default=256, metavar="N", help="with `closed` [%(default)s]")
    much.add_argument(
        "--think", type=_positive, default=5.0, metavar="S", help="their mean pause, s [%(default)s]"
    )
    much.add_argument(
        "--requests", type=_count, default=20_000, metavar="N", help="measured at least [%(default)s]"
    )
    much.add_argument(
        "--warm-up",
        type=_whole,
        metavar="N",
        help="requests before these at least, which are not measured [a quarter as many]",
    )
    much.add_argument(
        "--seconds",
        nargs=2,
        type=_not_negative,
        default=(60.0, 90.0),
        metavar=("W", "M"),
        help="virtual time that warm-up and measuring last at least [60 90]",
    )
    much.add_argument(
        "--seed", nargs="+", type=_whole, metavar="S", help="of all chance; with --sweep several [1]"
    )
    how = parser.add_argument_group("how it is simulated")
    how.add_argument(
        "--eviction",
        choices=("lfu", "lru", "fifo", "wa"),
        help="the engines' policy [the paper's for the workload: lru for wildchat and lmsys, else lfu]",
    )
    how.add_argument(
        "--tenants", type=_whole, default=50, metavar="N", help="with own system prompts [%(default)s]"
    )
    how.add_argument(
        "--block", type=_count, default=64, metavar="N", help="tokens of a KV block [%(default)s]"
    )
    how.add_argument("--linear", action="store_true", help="the paper's linear rates, not the measured ones")
    how.add_argument(
        "--faithful",
        action="store_true",
        help="a stream from every unit to each edge, in place of one that edges read as they decide",
    )
    how.add_argument(
        "--data",
        metavar="DIR",
        default=os.environ.get("KVCOMPASS_DATA"),
        help="recorded data to make workloads of, where it has them [KVCOMPASS_DATA]",
    )
    how.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="tokenizer.json for texts of exports and plain files"
    )
    kept = parser.add_argument_group("sweeps and results")
    kept.add_argument(
        "--sweep",
        action="store_true",
        help="several loads and seeds [0.5 0.9 1.2 1.6 2.0; 1 2 3], kept in --out-dir and gone on with there",
    )
    kept.add_argument(
        "--out-dir", type=Path, metavar="DIR", help="keep finished runs here [with --sweep: out/sweep]"
    )
    kept.add_argument("--any-code", action="store_true", help="also take kept runs that other code made")
    kept.add_argument(
        "--jobs", type=_count, default=os.cpu_count() or 1, metavar="N", help="processes [%(default)s]"
    )
    kept.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    kept.add_argument("--png", type=Path, metavar="FILE", help="write a plot; needs `make setup-simulator`")
    parser.set_defaults(command=_simulate)


def _simulate(options: argparse.Namespace) -> int:
    interruptible()
    from cli.simulate_run import print_names, run  # numba and the simulator are slow to import

    try:
        if options.list:
            print_names()
            return 0
        return run(options)
    except KVCompassError as error:
        option = _OPTIONS.get(error.field)
        sys.stderr.write(f"kvcompass simulate: {f'{option}: ' if option else ''}{error}\n")
        return 2
    except KeyboardInterrupt:
        if options.sweep or options.out_dir:
            sys.stderr.write("interrupted; what was finished is kept: run the same again to go on\n")
        return 130


def _positive(text: str) -> float:
    value = _number(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _not_negative(text: str) -> float:
    value = _number(text)
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _count(text: str) -> int:
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _whole(text: str) -> int:
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
