"""`python -m lab.netem.trial`: the routers in namespaces of this kernel, away from the machine's own network.

Needs root.

Exits with 0 when every figure is in its range, 1 when one is not, 3 when it cannot be tried here.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from kvcompass.errors import KVCompassError
from lab.interrupts import interruptible, uninterrupted
from lab.netem.errors import RouterError
from lab.netem.nfqueue_shaper import require_queues
from lab.netem.shaper import kernel_has_netem
from lab.netem.trial.checks import CHECKS, Trial
from lab.netem.trial.namespaces import REGIONS, Namespaces
from lab.netem.trial.outcome import Outcome, table
from lab.netem.trial.routers import Routers

CANNOT = 3


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lab.netem.trial", description=__doc__)
    parser.add_argument("--shaper", choices=("tc", "nfqueue"), required=True)
    parser.add_argument("--packets-per-s", type=int, default=6_000)
    parser.add_argument("--json", type=Path, help="where the figures go")
    arguments = parser.parse_args()
    interruptible()
    try:
        require(arguments.shaper)
    except RouterError as error:
        print(f"netem trial: SKIPPED: {error}", file=sys.stderr)
        sys.exit(CANNOT)
    try:
        outcomes = run_trial(arguments.shaper, arguments.packets_per_s)
    except KVCompassError as error:
        print(f"netem trial: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    print(table(outcomes))
    if arguments.json is not None:
        write_figures(arguments.json, arguments.shaper, outcomes)
    failed = sum(not each.ok for each in outcomes)
    print(f"{len(outcomes) - failed} of {len(outcomes)} as they should be, shaped by {arguments.shaper}")
    sys.exit(1 if failed else 0)


def run_trial(shaper: str, most_per_s: int) -> list[Outcome]:
    """Every check, in its order. Raises: RouterError."""
    outcomes: list[Outcome] = []
    namespaces = Namespaces()
    with tempfile.TemporaryDirectory(prefix="kvcompass-wan-") as directory:
        try:
            namespaces.create()
            routers = Routers(namespaces, Path(directory), shaper)
            try:
                for region in REGIONS:
                    routers.start(region)
                trial = Trial(namespaces, routers, shaper, most_per_s)
                for check in CHECKS:
                    for outcome in check(trial):
                        print(f"  {outcome.name}: {outcome.measured:.4g} {outcome.unit}", flush=True)
                        outcomes.append(outcome)
            finally:
                with uninterrupted():
                    routers.close()
        finally:
            with uninterrupted():
                namespaces.close()
    return outcomes


def write_figures(path: Path, shaper: str, outcomes: list[Outcome]) -> None:
    """Writes what was measured as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "kernel": platform.release(),
        "shaper": shaper,
        "failed": [each.name for each in outcomes if not each.ok],
        "outcomes": [{**asdict(each), "ok": each.ok} for each in outcomes],
    }
    path.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


def require(shaper: str) -> None:
    """Raises: RouterError where there can be no trial, with what is missing."""
    if os.geteuid() != 0:
        raise RouterError("namespaces need root", field="user")
    for tool in ("ip", "tc", "iptables"):
        if shutil.which(tool) is None:
            raise RouterError(f"{tool} is missing; install iproute2 and iptables", field=tool)
    namespaces = Namespaces()
    try:
        namespaces.create()
        with namespaces.inside("router-us"):
            if shaper == "nfqueue":
                require_queues()
            elif not kernel_has_netem():
                raise RouterError("this kernel has no netem; try --shaper nfqueue", field="shaper")
    finally:
        namespaces.close()


if __name__ == "__main__":
    main()
