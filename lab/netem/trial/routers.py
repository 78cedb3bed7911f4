"""The router programs of a trial, run unchanged, each in its namespace."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from lab.netem.commands import ask
from lab.netem.errors import RouterError
from lab.netem.trial.namespaces import REGIONS, Namespaces

_PROFILE: Final = """\
name = "trial"
source = "made up for the trial: every direction differs"
regions = ["us", "eu", "asia"]
link = [
  { origin = "us", destination = "eu", one_way_ms = 20 },
  { origin = "eu", destination = "us", one_way_ms = 30 },
  { origin = "us", destination = "asia", one_way_ms = 75 },
  { origin = "asia", destination = "us", one_way_ms = 60 },
  { origin = "eu", destination = "asia", one_way_ms = 45 },
  { origin = "asia", destination = "eu", one_way_ms = 100 },
]
"""
_START_S: Final = 90.0
_STOP_S: Final = 10.0


class Routers:
    """Starts, commands and kills the routers. `directory` takes their settings and what they say."""

    def __init__(self, namespaces: Namespaces, directory: Path, shaper: str) -> None:
        self._namespaces = namespaces
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (directory / "trial.toml").write_text(_PROFILE, "utf-8")
        regions = "".join(
            f'[regions.{name}]\nsubnet = "{each.subnet}"\n'
            f'gateway = "{each.gateway}"\nrouter = "{each.router}"\n'
            for name, each in REGIONS.items()
        )
        settings = f'profile = "trial.toml"\nshaper = "{shaper}"\nrandom_seed = 7\n{regions}'
        (directory / "wan.toml").write_text(settings, "utf-8")

    def start(self, region: str) -> None:
        """Starts a router and waits until it obeys. Raises: RouterError with what it said."""
        log = self._directory / f"{region}.log"
        place = ("ip", "netns", "exec", self._namespaces.name(f"router-{region}"))
        program = (sys.executable, "-m", "lab.netem", "run", "--region", region)
        settings = ("--settings", str(self._directory / "wan.toml"))
        with log.open("ab") as output:
            self._processes[region] = subprocess.Popen(
                (*place, *program, *settings), stdout=output, stderr=subprocess.STDOUT
            )
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends and self._processes[region].poll() is None:
            try:
                self.ask(region, "/show")
            except RouterError:
                time.sleep(0.1)
                continue
            return
        raise RouterError(f"router {region} does not start:\n{log.read_text('utf-8')}", field=region)

    def ask(self, region: str, path: str, given: dict[str, object] | None = None) -> dict[str, Any]:
        """Gives a command to a router. Raises: RouterError."""
        with self._namespaces.inside(f"router-{region}"):
            return ask(path, given)

    def change(self, origin: str, destination: str, **values: object) -> None:
        """Sets figures of one link."""
        self.ask(origin, "/set", {"region": destination, "values": values})

    def kill(self, region: str) -> None:
        """SIGKILL: no time to clean up."""
        self._end(region, signal.SIGKILL)

    def stop(self, region: str) -> int:
        """SIGTERM; returns the exit status."""
        return self._end(region, signal.SIGTERM)

    def close(self) -> None:
        """Kills those that run."""
        for region in tuple(self._processes):
            self._end(region, signal.SIGKILL)

    def cpu_s(self, region: str) -> float:
        """CPU time that a router has used."""
        stat = Path(f"/proc/{self._processes[region].pid}/stat").read_text("ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _end(self, region: str, by: signal.Signals) -> int:
        process = self._processes.pop(region)
        process.send_signal(by)
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
