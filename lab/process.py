"""One process of the lab: started in its own group, logged to a file, stopped for certain."""

import http.client
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kvcompass.errors import KVCompassError

_SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "PYTHONUNBUFFERED": "1",
}
"""A dozen processes share a laptop's cores: none of them starts a thread pool of its own."""


class LabError(KVCompassError):
    """The lab cannot start or lost a process; the message ends with what the process said last."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to start and how to know that it is ready."""

    name: str
    module: str
    settings: str
    """Content of its settings file, TOML."""
    ready_address: str
    """host:port that answers `GET ready_path` with 200 once the process is ready."""
    ready_path: str = "/ready"


class LabProcess:
    """A process and its files in `directory`. `kill` leaves it startable again."""

    def __init__(self, spec: ProcessSpec, directory: Path) -> None:
        self.spec = spec
        self.log = directory / f"{spec.name}.log"
        self._settings = directory / f"{spec.name}.toml"
        self._settings.touch(mode=0o600)
        self._settings.write_text(spec.settings, "utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._stdout: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it; returns at once."""
        assert not self.running
        self._stdout = self.log.open("ab")
        command = [sys.executable, "-m", "lab.child", str(os.getpid()), self.spec.module]
        self._process = subprocess.Popen(
            [*command, "--settings", str(self._settings)],
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **_SINGLE_THREADED},
        )

    def ready(self) -> bool:
        """Whether it says that it is ready. Errors: LabError when it ended."""
        if not self.running:
            code = self._process.returncode if self._process is not None else None
            raise LabError(f"{self.spec.name} ended with status {code}:\n{self.tail()}", field=self.spec.name)
        status, _ = self._ask_ready()
        return status == 200

    def why_not_ready(self) -> str:
        """What `/ready` says, for a message."""
        status, body = self._ask_ready()
        return f"{self.spec.name} is not ready ({status or 'no answer'}): {body or self.tail(8)}"

    def terminate(self) -> None:
        """Asks it to drain and end."""
        if self.running and self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to its whole group, and waits for the end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._stdout is not None:
            self._stdout.close()
            self._stdout = None

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def tail(self, lines: int = 15) -> str:
        """Its last log lines."""
        try:
            return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"

    def _ask_ready(self) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.spec.ready_address, timeout=1.0)
        try:
            connection.request("GET", self.spec.ready_path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()


def wait_ready(processes: list[LabProcess], timeout_s: float) -> None:
    """Returns once all say that they are ready. Errors: LabError naming who is not, and why."""
    deadline = time.monotonic() + timeout_s
    waiting = list(processes)
    while waiting := [process for process in waiting if not process.ready()]:
        if time.monotonic() > deadline:
            raise LabError("\n".join(process.why_not_ready() for process in waiting), field="ready")
        time.sleep(0.05)


def stop_all(processes: list[LabProcess], grace_s: float) -> None:
    """SIGTERM to all, SIGKILL to those that outlast the grace. Nothing runs afterwards."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.wait(max(0.0, deadline - time.monotonic()))
        process.kill()
