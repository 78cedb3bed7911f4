"""A running lab: every process of a blueprint, started in order of dependency, ended without a trace."""

import contextlib
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.blueprint import Blueprint
from lab.interrupts import uninterrupted
from lab.process import LabError, LabProcess, ProcessSpec, stop_all, wait_ready

READY_TIMEOUT_S = 120.0
_GRACE_S = 5.0
_RELAY_TIMEOUT_S = 5.0

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Past the environment's proxy, which would be asked for loopback too."""

Step = Callable[[str], None]


class Fleet:
    """Use as a context manager. On the way out, whatever the reason, no process is left.

    The run directory (plan, settings, logs) is removed afterwards unless the lab failed or `keep` is set;
    where it is kept, standard error says where it is.
    """

    def __init__(self, blueprint: Blueprint, *, on_step: Step | None = None, keep: bool = False) -> None:
        self.blueprint = blueprint
        self._on_step = on_step or (lambda _: None)
        self._keep = keep
        self.directory = Path(tempfile.mkdtemp(prefix="kvcompass-lab-"))
        (self.directory / "plan.toml").write_text(blueprint.plan_text, "utf-8")
        self._stages = [
            [LabProcess(spec, self.directory) for spec in stage.processes] for stage in blueprint.stages
        ]
        self._processes = {process.spec.name: process for stage in self._stages for process in stage}

    def __enter__(self) -> Self:
        """Starts everything. Errors: LabError with the last log lines of whoever failed."""
        try:
            for stage, processes in zip(self.blueprint.stages, self._stages, strict=True):
                self._on_step(stage.name)
                for process in processes:
                    process.start()
                wait_ready(processes, READY_TIMEOUT_S)
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops everything."""
        self._end(error)

    @property
    def base_urls(self) -> Mapping[str, str]:
        """Region -> base URL of its first edge, for an OpenAI client."""
        return {edge.region: f"http://{edge.address}/v1" for edge in reversed(self.blueprint.plan.edges)}

    @property
    def processes(self) -> list[LabProcess]:
        """All of them."""
        return list(self._processes.values())

    def process(self, name: str) -> LabProcess:
        """A process by its name: `edge-us`, `worker-us-1`, `agent-us-1`, `unit-0`, `relay`."""
        return self._processes[name]

    def add(self, spec: ProcessSpec) -> None:
        """Starts one process more, which ends with the others. Returns at once."""
        process = LabProcess(spec, self.directory)
        self._processes[spec.name] = process
        process.start()

    def restart(self, name: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts a killed process again and waits until it is ready. Errors: LabError."""
        process = self._processes[name]
        process.start()
        wait_ready([process], timeout_s)

    def partition(self, origin: str, destination: str, *, cut: bool) -> None:
        """Cuts or heals one direction between two regions."""
        url = f"http://{self.blueprint.relay_control}/partition/{origin}/{destination}"
        request = urllib.request.Request(url, method="PUT" if cut else "DELETE")
        with contextlib.closing(_DIRECT.open(request, timeout=_RELAY_TIMEOUT_S)):
            pass

    def wan_bytes(self) -> int:
        """Bytes that crossed regions so far, both ways, all kinds of traffic."""
        url = f"http://{self.blueprint.relay_control}/state"
        with contextlib.closing(_DIRECT.open(url, timeout=_RELAY_TIMEOUT_S)) as answer:
            return sum(wire["carried_bytes"] for wire in json.load(answer)["wires"])

    def check(self) -> None:
        """Errors: LabError with the last log lines of the first process that ended unasked."""
        for process in self._processes.values():
            if not process.running:
                raise LabError(f"{process.spec.name} ended:\n{process.tail()}", field=process.spec.name)

    def _end(self, error: BaseException | None) -> None:
        with uninterrupted():
            stop_all(list(self._processes.values()), _GRACE_S)
            # A lab that is interrupted has not failed.
            if self._keep or isinstance(error, Exception):
                sys.stderr.write(f"kvcompass lab: plan, settings and logs are in {self.directory}\n")
            else:
                shutil.rmtree(self.directory, ignore_errors=True)
