"""A real SGLang server on CPUs, with a random model of two layers."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Literal

import httpx

from lab.process import LabError
from tests.engines.engine import CACHE_TOKENS, CONTEXT_TOKENS, MODEL, PAGE_TOKENS, RING_BATCHES, Place
from tests.engines.real.homes import Release
from tests.engines.real.tiny_model import write_tiny_model

_STAND_INS: Final = Path(__file__).parent / "stand_ins"
_START_S: Final = 300.0
_BINDS_WHEN_TOLD: Final = (0, 5, 23)
"""Earlier publishers of events listen on all interfaces, or connect."""


class Sglang:
    """One installed version. Its events listen on all interfaces before 0.5.23."""

    kind: Literal["sglang"] = "sglang"
    patience_s = 120.0

    def __init__(self, place: Place, release: Release) -> None:
        self._place = place
        self._release = release
        self._log = place.directory / f"{release.name}.log"
        self._model = place.directory / "model"
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        write_tiny_model(self._model)

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
            cwd=self._place.directory,
            env=environment(self._release),
        )
        deadline = time.monotonic() + _START_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise LabError(f"{self._release.name} does not start:\n{self._tail()}", field="engine")
            time.sleep(0.5)

    def kill(self) -> None:
        """As `Engine` has it: the server, its scheduler and its detokenizer are one process group."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        if self._output is not None:
            self._output.close()

    def command(self) -> list[str]:
        """What is started. docs/deploy-engines.md has the reasons of the options that operators give, too."""
        address, _, port = self._place.address.rpartition(":")
        return [
            str(self._release.python),
            *("-m", "sglang.launch_server"),
            *("--model-path", str(self._model), "--served-model-name", MODEL),
            *("--host", address, "--port", port),
            *("--page-size", str(PAGE_TOKENS), "--context-length", str(CONTEXT_TOKENS)),
            *("--max-total-tokens", str(CACHE_TOKENS), "--mem-fraction-static", "0.5"),
            *("--kv-events-config", json.dumps(self._events())),
            *("--enable-cache-report", "--enable-metrics"),
            # Without a GPU, and without weights.
            *("--device", "cpu", "--load-format", "dummy", "--dtype", "float32"),
            *("--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
            *("--grammar-backend", "none", "--disable-cuda-graph", "--disable-overlap-schedule"),
            "--skip-server-warmup",
        ]

    def _events(self) -> dict[str, object]:
        told = tuple(int(part) for part in self._release.version.split(".")) >= _BINDS_WHEN_TOLD
        events, replay = self._place.events, self._place.replay
        if not told:
            events, replay = (f"*:{address.rpartition(':')[2]}" for address in (events, replay))
        return {
            "publisher": "zmq",
            "endpoint": f"tcp://{events}",
            "replay_endpoint": f"tcp://{replay}",
            "topic": "kv-events",
            "buffer_steps": RING_BATCHES,
        } | ({"bind": True} if told else {})

    def _serves(self) -> bool:
        try:
            return httpx.get(f"{self._place.url}/v1/models", timeout=2.0, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def _tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-lines:])


def environment(release: Release) -> dict[str, str]:
    """In which its Python runs: stand-ins for what it lacks, nothing fetched, an end with its parent."""
    return {
        **os.environ,
        "PYTHONPATH": str(_STAND_INS),
        "KVCOMPASS_STAND_INS": " ".join(release.stand_ins),
        "KVCOMPASS_ENDS_WITH": str(os.getpid()),
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
