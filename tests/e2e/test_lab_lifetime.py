"""A lab leaves nothing running: after Ctrl-C, and when it is killed itself."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.asking import comes_true

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def processes_of(directory: str) -> list[int]:
    """Processes whose command line names the run directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if directory.encode() in command:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.usefixtures("no_shared_lab")
def test_nothing_is_left_running(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "cli", "lab", "up", "--time-scale", "0.1"]
    command += ["--env", str(tmp_path / "lab.env")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        directory = ""
        for line in lab.stdout:
            if found := re.search(r"Logs and settings: (\S+)", line):
                directory = found[1]
            if "Ctrl-C" in line:
                break
        try:
            assert len(processes_of(directory)) == 15
            lab.send_signal(number)
            assert lab.wait(20.0) == (-signal.SIGKILL if number == signal.SIGKILL else 130)
        finally:
            lab.kill()
        try:
            assert comes_true(lambda: not processes_of(directory), limit_s=5.0)
        finally:
            for process in processes_of(directory):
                os.kill(process, signal.SIGKILL)
    assert number == signal.SIGKILL or not Path(directory).exists()
    shutil.rmtree(directory, ignore_errors=True)
