"""A real engine's server as a process: started with its own Python, ended with all that it started."""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import httpx

from lab.process import LabError
from tests.engines.engine import Place
from tests.engines.real.homes import Release
from tests.engines.real.tiny_model import write_tiny_model

_STAND_INS: Final = Path(__file__).parent / "stand_ins"
_START_S: Final = 300.0


class Server(ABC):
    """One installed version at a place, with the tiny model."""

    patience_s = 120.0

    def __init__(self, place: Place, release: Release) -> None:
        self.place = place
        self.release = release
        self.model = place.directory / "model"
        self._log = place.directory / f"{release.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        write_tiny_model(self.model)

    @abstractmethod
    def command(self) -> list[str]:
        """What is started."""

    def start(self) -> None:
        """As `Engine` has it. Errors: LabError with its last log lines."""
        assert self._process is None, "it runs"
        self._output = self._log.open("ab")
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=self.place.directory,
            env=environment(self.release),
        )
        deadline = time.monotonic() + _START_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise LabError(f"{self.release.name} does not start:\n{self._tail()}", field="engine")
            time.sleep(0.5)

    def kill(self) -> None:
        """As `Engine` has it: the server and the processes of its engine are one process group."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        if self._output is not None:
            self._output.close()

    def _serves(self) -> bool:
        try:
            return httpx.get(f"{self.place.url}/v1/models", timeout=2.0, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def _tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-lines:])


def environment(release: Release) -> Mapping[str, str]:
    """In which its Python runs: stand-ins for what it lacks, nothing fetched, an end with its parent."""
    return {
        **os.environ,
        "PYTHONPATH": str(_STAND_INS),
        "KVCOMPASS_STAND_INS": " ".join(release.stand_ins),
        "KVCOMPASS_ENDS_WITH": str(os.getpid()),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        **release.environment,
    }
