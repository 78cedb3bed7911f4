"""The container engine's command line: one project of deploy/compose."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcompass.errors import KVCompassError

QUICK_S = 60.0
"""For a command that only asks, or starts something."""
SLOW_S = 1_800.0
"""For building images."""


class EngineError(KVCompassError):
    """The container engine is missing or refused a command; the message ends with what it said."""


class Compose:
    """Runs `docker compose` for one file. Every command has a timeout."""

    def __init__(self, file: Path, project: str) -> None:
        self._base = ("docker", "compose", "-f", str(file), "-p", project)

    def build(self) -> None:
        """Builds every image of the file. Minutes, the first time."""
        self._do("build", timeout_s=SLOW_S)

    def up(self, services: Sequence[str]) -> None:
        """Creates and starts the services, in the background."""
        self._do("up", "--detach", "--no-build", *services, timeout_s=SLOW_S)

    def down(self) -> None:
        """Stops and removes everything of the project, volumes too."""
        self._do("--profile", "*", "down", "--volumes", "--timeout", "5", timeout_s=SLOW_S)

    def services(self) -> list[str]:
        """Names of the services that run without a profile."""
        return self._do("config", "--services").split()

    def images(self) -> Mapping[str, str]:
        """Service -> tag of its image, profiles included."""
        configuration = json.loads(self._do("--profile", "*", "config", "--format", "json"))
        return {name: str(service["image"]) for name, service in configuration["services"].items()}

    def execute(self, service: str, *command: str, stdin: str = "", timeout_s: float = QUICK_S) -> str:
        """Runs a command in a container of the service and returns what it printed."""
        return self._do("exec", "-T", service, *command, stdin=stdin, timeout_s=timeout_s)

    def run(self, service: str, *command: str, timeout_s: float = SLOW_S) -> str:
        """Runs a service once, to its end, and returns what it printed."""
        return self._do("run", "--rm", "-T", "--no-deps", service, *command, timeout_s=timeout_s)

    def started_at(self, service: str) -> str:
        """When the container of the service started last; empty when there is none."""
        container = self._do("ps", "--all", "--quiet", service).strip()
        return _run(("docker", "inspect", "--format", "{{.State.StartedAt}}", container)).strip()

    def logs(self, lines: int) -> str:
        """The last lines of every container, for a report of what went wrong."""
        return self._do("logs", "--no-color", "--tail", str(lines))

    def _do(self, *arguments: str, stdin: str = "", timeout_s: float = QUICK_S) -> str:
        return _run((*self._base, *arguments), stdin=stdin, timeout_s=timeout_s)


def engine_version() -> str:
    """Version of the engine that answers. Errors: EngineError when there is none, or no Compose."""
    if shutil.which("docker") is None:
        raise EngineError("no `docker` command: install a container engine with Compose")
    _run(("docker", "compose", "version"))
    return _run(("docker", "version", "--format", "{{.Server.Version}}")).strip()


def image_megabytes(tag: str) -> float:
    """Size on disk, layers of its base included; 1 MB is 1e6 bytes."""
    return round(int(_run(("docker", "image", "inspect", "--format", "{{.Size}}", tag))) / 1e6, 1)


def has_image(tag: str) -> bool:
    """Whether the engine has an image of this tag already."""
    return bool(_run(("docker", "image", "ls", "--quiet", tag)).strip())


def _run(command: Sequence[str], *, stdin: str = "", timeout_s: float = QUICK_S) -> str:
    environment: dict[str, Any] = {**os.environ, "COMPOSE_ANSI": "never", "COMPOSE_PROGRESS": "plain"}
    shown = " ".join(command)
    try:
        ended = subprocess.run(
            command,
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"`{shown}` took longer than {timeout_s:g} s") from error
    if ended.returncode:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip()
        raise EngineError(f"`{shown}` failed: {said[-2_000:]}")
    return ended.stdout.decode()
