"""`kvcompass lab up|run|demo|load|faults`."""

import argparse
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from kvcompass.errors import KVCompassError
from kvcompass.routing.names import POLICY_NAMES
from lab import demo, run, up
from lab.faults.cases import CASES
from lab.faults.run import FaultOptions, run_faults
from lab.interrupts import interruptible
from lab.load import LoadOptions, run_load
from lab.ports import LoopbackPorts
from lab.process import LabError
from lab.three_regions import LabOptions
from lab.wan_profiles import load_profile, shipped_profiles
from lab.workload.schedule import Shape

_SHAPE = Shape()
_MOST_REQUESTS, _MOST_SECONDS, _MOST_ROUNDS = 100_000, 3_600.0, 1_000
"""A load ends by itself."""


def add_arguments(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the lab's subcommands. Each sets `command`, a function of the parsed options to an exit code."""
    parser = commands.add_parser("up", help="start a three-region fleet and leave it up until Ctrl-C")
    _fleet_arguments(parser)
    parser.add_argument("--policy", choices=POLICY_NAMES, default="kvcompass")
    parser.add_argument(
        "--env",
        type=Path,
        default=Path("out/lab.env"),
        help="write the endpoints here (default: %(default)s)",
    )
    parser.set_defaults(command=_guarded(_up))

    parser = commands.add_parser("run", help="start a fleet, replay a workload under one policy, report")
    _fleet_arguments(parser)
    _workload_arguments(parser)
    parser.add_argument("--policy", choices=POLICY_NAMES, default="kvcompass")
    parser.add_argument("--json", type=Path, help="write figures and every request's record here")
    parser.set_defaults(command=_guarded(_run))

    parser = commands.add_parser("demo", help="the same workload under every policy, and one table")
    _fleet_arguments(parser)
    _workload_arguments(parser)
    parser.add_argument("--json", type=Path, default=Path("out/demo.json"), help="default: %(default)s")
    parser.set_defaults(command=_guarded(_demo))

    parser = commands.add_parser("load", help="replay a workload against a fleet that is up")
    _workload_arguments(parser)
    parser.add_argument("--plan", type=Path, required=True, help="the fleet's plan")
    parser.add_argument(
        "--edge",
        type=_edge,
        action="append",
        default=[],
        metavar="REGION=URL",
        help="send a region's requests here instead of to the plan's edge; once a region",
    )
    parser.add_argument("--api-key-file", type=Path, help="whose key to send (default: none is needed)")
    parser.add_argument(
        "--admin-key-file", type=Path, help="to read the edges' counters (default: the API key)"
    )
    parser.add_argument("--repeat", type=_count, default=1, help="rounds over the same texts (default: 1)")
    parser.add_argument("--json", type=Path, help="write figures and every request's record here; - prints")
    parser.set_defaults(command=_guarded(_load))

    parser = commands.add_parser("faults", help="break a fleet under load in every way, and measure")
    parser.add_argument(
        "--case",
        action="append",
        choices=tuple(CASES),
        default=[],
        help="run this one only; may be repeated (default: all)",
    )
    parser.add_argument(
        "--requests-per-s", type=_positive, default=4.0, help="of all regions together (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=Path("out/faults.json"), help="default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="keep the run directory: plan, settings, logs")
    parser.set_defaults(command=_guarded(_faults))


def _fleet_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--time-scale",
        type=_positive,
        default=1.0,
        help="real time for each unit of model time, of network and engines alike (default: %(default)s)",
    )
    parser.add_argument(
        "--jitter-ms",
        type=_not_negative,
        default=0.0,
        help="standard deviation of every one-way latency, model ms",
    )
    parser.add_argument(
        "--wan-profile",
        metavar="NAME",
        default="paper-testbed",
        help=f"{', '.join(shipped_profiles())}, or a .toml file (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the run directory: plan, settings, logs")


def _workload_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=_SHAPE.seed)
    parser.add_argument("--requests", type=_count, default=_SHAPE.requests)
    parser.add_argument(
        "--duration-s", type=_positive, default=_SHAPE.duration_ms / 1e3, help="model seconds of arrivals"
    )


def _options(options: argparse.Namespace) -> LabOptions:
    return LabOptions(
        policy=getattr(options, "policy", "kvcompass"),
        time_scale=options.time_scale,
        jitter_ms=options.jitter_ms,
        wan=load_profile(options.wan_profile),
    )


def _shape(options: argparse.Namespace) -> Shape:
    return Shape(requests=options.requests, duration_ms=1e3 * options.duration_s, seed=options.seed)


def _up(options: argparse.Namespace) -> None:
    up.stay_up(_options(options), _ports(), env_path=options.env, keep=options.keep)


def _run(options: argparse.Namespace) -> None:
    run.run_once(
        _options(options), _shape(options), _ports(), os.environ, json_path=options.json, keep=options.keep
    )


def _demo(options: argparse.Namespace) -> None:
    demo.run_demo(
        _options(options), _shape(options), _ports(), os.environ, json_path=options.json, keep=options.keep
    )


def _load(options: argparse.Namespace) -> int:
    for name, most in (("requests", _MOST_REQUESTS), ("duration_s", _MOST_SECONDS), ("repeat", _MOST_ROUNDS)):
        if getattr(options, name) > most:
            flag = name.replace("_", "-")
            raise LabError(f"--{flag} is at most {most:,.0f}: a load ends by itself", field=flag)
    failed = run_load(
        LoadOptions(
            plan=options.plan,
            edges=dict(options.edge),
            api_key_file=options.api_key_file,
            admin_key_file=options.admin_key_file,
            shape=_shape(options),
            repeat=options.repeat,
            json_path=options.json,
        ),
        os.environ,
    )
    return 1 if failed else 0


def _faults(options: argparse.Namespace) -> int:
    failed = run_faults(
        FaultOptions(
            cases=options.case or list(CASES),
            requests_per_s=options.requests_per_s,
            json_path=options.json,
            keep=options.keep,
        ),
        _ports(),
    )
    return 1 if failed else 0


def _ports() -> LoopbackPorts:
    return LoopbackPorts(random.Random(os.getpid()))


def _guarded(work: Callable[[argparse.Namespace], int | None]) -> Callable[[argparse.Namespace], int]:
    """Operating errors become one message and exit code 2; SIGTERM ends a lab as Ctrl-C does."""

    def command(options: argparse.Namespace) -> int:
        interruptible()
        try:
            return work(options) or 0
        except KVCompassError as error:
            sys.stderr.write(f"kvcompass lab: {error}\n")
            return 2
        except KeyboardInterrupt:
            return 130

    return command


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0.0:
        raise argparse.ArgumentTypeError("must be positive")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _edge(text: str) -> tuple[str, str]:
    region, separator, url = text.partition("=")
    if not separator or not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError("give REGION=http://HOST:PORT")
    try:
        named = bool(httpx.URL(url).host)
    except httpx.InvalidURL as error:
        raise argparse.ArgumentTypeError(f"{url!r}: {error}") from error
    if not named:
        raise argparse.ArgumentTypeError(f"{url!r} names no host")
    return region, url


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
