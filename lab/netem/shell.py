"""Runs the system's network tools."""

import subprocess
from collections.abc import Sequence
from typing import Final

from lab.netem.errors import RouterError

_TIMEOUT_S: Final = 10.0


def call(*command: str, stdin: str = "") -> str:
    """Runs a command; returns what it printed.

    Raises:
        RouterError: It is missing, failed or hung; the message ends with what it said.
    """
    done = _run(command, stdin)
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise RouterError(f"`{' '.join(command)}` failed: {said}", field=command[0])
    return done.stdout


def succeeds(*command: str, stdin: str = "") -> bool:
    """Runs a command that may fail."""
    return _run(command, stdin).returncode == 0


def _run(command: Sequence[str], stdin: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RouterError(f"cannot run `{' '.join(command)}`: {error}", field=command[0]) from error
