"""How fast the simulator is, how its cost grows with the fleet, and how much memory a long run takes.

python -m bench.simulator --json out/simulator.json            # some 20 minutes
python -m bench.simulator --quick                              # a minute, shows only that it works

Everything on Mixed with blocks of 64 tokens, at nine tenths of the no-reuse capacity, under KVCompass. Each
run has a process of its own; its time is that of `World.run`: requests made, routed, served and recorded,
and the laws checked. `--clock cpu` leaves out what other processes took from this one.
"""

import argparse
import gc
import json
import multiprocessing
import os
import platform
import resource
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.tables import plain
from simulator.experiments.cell import Setting
from simulator.experiments.policies import policy_named
from simulator.experiments.run import fleet_of, source_of
from simulator.experiments.study import capacity
from simulator.router import Rival
from simulator.world import World

POLICY: Final = "kvcompass"
LOAD: Final = 0.9
FLEETS: Final = ("paper-64", "scale-128x16", "scale-256x16", "scale-512x32", "scale-1024x64")
AIMS: Final = {"shared": 5_000.0, "faithful": 1_000.0}
"""Requests a second on one core at 64 workers. Not reached: docs/decisions/1033."""
MEMORY_GB: Final = 3.0
"""Of half a million requests, at most."""
_STATUS: Final = Path("/proc/self/status")
_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1_024


@dataclass(frozen=True, slots=True)
class Speed:
    """One run."""

    requests: int
    wall_s: float
    cpu_s: float
    setup_s: float
    """Fleet, workload and world made, kernels loaded; in no other figure."""
    peak_gb: float
    """Of the process, code and libraries included."""

    def requests_per_s(self, clock: str) -> float:
        """Simulated requests a second."""
        return self.requests / (self.cpu_s if clock == "cpu" else self.wall_s)


def measure(fleet: str, requests: int, faithful: bool, policy: str = POLICY) -> Speed:
    """Run a fleet in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_run, (fleet, requests, faithful, policy))


def _run(fleet: str, requests: int, faithful: bool, policy: str) -> Speed:
    began = time.perf_counter()
    setting = Setting(fleet=fleet, requests=requests, warm_up=0, faithful=faithful)
    rate_per_s = LOAD * capacity(setting, 1).rate_per_s
    rival = policy_named(policy, faithful)
    # Kernels are compiled and caches of code warm before the clock runs.
    _world(replace(setting, requests=200), rate_per_s, rival).run()
    world = _world(setting, rate_per_s, rival)
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    setup_s = wall_s - began
    world.run()
    return Speed(
        requests=world.records.rows,
        wall_s=time.perf_counter() - wall_s,
        cpu_s=time.process_time() - cpu_s,
        setup_s=setup_s,
        peak_gb=_peak_gb(),
    )


def _peak_gb() -> float:
    """The most memory this process had resident.

    Linux counts in a child's `ru_maxrss` what its parent had when it made it, but not in `VmHWM`.
    """
    if _STATUS.exists():
        (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1_024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 1e9


def _world(setting: Setting, rate_per_s: float, rival: Rival) -> World:
    fleet = fleet_of(setting)
    return World(fleet, source_of(setting, fleet, rate_per_s, 1), rival, seed=1)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50_000, help="of a run at 64 workers [%(default)s]")
    parser.add_argument(
        "--growth", type=int, default=20_000, metavar="N", help="requests of larger fleets [%(default)s]"
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=500_000,
        metavar="N",
        help="requests of the long run; 0: none [%(default)s]",
    )
    parser.add_argument("--fleets", nargs="*", default=list(FLEETS), metavar="F", help="of the growth")
    parser.add_argument("--quick", action="store_true", help="small runs, and two fleets")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a shared machine")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.requests, options.growth, options.memory = 2_000, 1_000, 4_000
        options.fleets = options.fleets[:2]
    runs = {
        "shared": (FLEETS[0], options.requests, False),
        "faithful": (FLEETS[0], options.requests, True),
        **{f"growth {fleet}": (fleet, options.growth, False) for fleet in options.fleets},
        **({"memory": (FLEETS[0], options.memory, False)} if options.memory else {}),
    }
    found: dict[str, Speed] = {}
    for name, asked in runs.items():
        found[name] = measure(*asked)
        print(f"{name}: {found[name].requests_per_s(options.clock):,.0f} requests/s", flush=True)
    print(f"\n{table(found, options.clock)}")
    if options.json:
        machine = {"processor": platform.machine(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
        document: dict[str, Any] = {
            "machine": machine,
            "clock": options.clock,
            "policy": POLICY,
            "load": LOAD,
        }
        document["aims"] = {"requests_per_s": AIMS, "peak_gb": MEMORY_GB}
        document["runs"] = {
            name: asdict(speed) | {"requests_per_s": speed.requests_per_s(options.clock)}
            for name, speed in found.items()
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def table(found: dict[str, Speed], clock: str) -> str:
    """What was found, beside what is aimed at."""
    rows = []
    for name, speed in found.items():
        a_second = speed.requests_per_s(clock)
        aim = f">= {AIMS[name]:,.0f} requests/s" if name in AIMS else ""
        aim = f"< {MEMORY_GB:g} GB at 500,000" if name == "memory" else aim
        figures = (
            f"{speed.requests:,}",
            f"{a_second:,.0f}",
            f"{1e6 / a_second:,.0f}",
            f"{speed.peak_gb:.2f}",
        )
        rows.append((name, *figures, aim))
    head = ("KVCompass on mixed, blocks of 64", "requests", "requests/s", "us each", "peak GB", "aim")
    return plain(head, rows)


if __name__ == "__main__":
    main()
