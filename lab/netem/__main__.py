"""A WAN router and its command line: `netem run|show|cut|heal|set|profile`."""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from kvcompass.errors import KVCompassError
from lab.netem.commands import ask, read_values, table
from lab.netem.http_api import HttpApi
from lab.netem.log import say
from lab.netem.router import Router
from lab.netem.settings import load_settings

_SWITCH_S = 0.000_5
"""How long another thread may keep the shaper's waiting."""


def main() -> None:
    """Entry point."""
    arguments = _parser().parse_args()
    try:
        if arguments.command == "run":
            _run(arguments.settings, arguments.region)
        else:
            report = _command(arguments)
            print(json.dumps(report, indent=2) if arguments.json else table(report))
    except KVCompassError as error:
        print(f"netem: {error}", file=sys.stderr)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="netem", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="be the router of a region until SIGTERM")
    run.add_argument("--region", required=True)
    run.add_argument("--settings", type=Path, default=Path("/etc/kvcompass/wan.toml"))
    show = commands.add_parser("show", help="what is shaped, cut and measured")
    cut = commands.add_parser("cut", help="let nothing pass to and from a region")
    heal = commands.add_parser("heal", help="let it pass again")
    for each in (cut, heal):
        each.add_argument("region")
        each.add_argument("--one-way", action="store_true", help="only toward the region")
    change = commands.add_parser("set", help="change the link to a region: one_way_ms=200 loss=0.01")
    change.add_argument("region")
    change.add_argument("values", nargs="+", metavar="NAME=VALUE")
    profile = commands.add_parser("profile", help="take the links of another profile")
    profile.add_argument("name")
    for each in (show, cut, heal, change, profile):
        each.add_argument("--json", action="store_true")
    return parser


def _command(arguments: argparse.Namespace) -> dict[str, object]:
    match arguments.command:
        case "cut" | "heal":
            given = {"region": arguments.region, "one_way": arguments.one_way}
            return ask(f"/{arguments.command}", given)
        case "set":
            return ask("/set", {"region": arguments.region, "values": read_values(arguments.values)})
        case "profile":
            return ask("/profile", {"name": arguments.name})
    return ask("/show")


def _run(settings: Path, region: str) -> None:
    stopping = threading.Event()
    broken = threading.Event()

    def fail() -> None:
        broken.set()
        stopping.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stopping.set())
    sys.setswitchinterval(_SWITCH_S)
    router = Router(load_settings(settings, region), fail)
    api = HttpApi(router)  # before anything is changed: the second router of a namespace ends here
    try:
        router.start()
        api.start()
        stopping.wait()
        if broken.is_set():
            say("the shaper died")
            sys.stdout.flush()
            os._exit(1)
        api.stop()
    finally:
        router.stop()
    say("stopped", region=region)


if __name__ == "__main__":
    main()
