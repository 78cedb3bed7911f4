"""`python -m lab.netem.trial.uml`: the trial under a kernel with netem that is a process (User-Mode Linux).

The guest sees this machine's files, read-only, and has no way out but a directory for its figures. Its root
runs with the rights of whoever starts it. Exits as the trial does; with 3 also where there is no such kernel.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from lab.interrupts import interruptible
from lab.netem.trial.__main__ import CANNOT
from lab.netem.trial.uml_registers import SSE_ONLY, refuse_wide_registers

_KERNELS: Final = ("linux.uml", "linux")
_MODULES: Final = Path("/usr/lib/uml/modules")
_TIMEOUT_S: Final = 420.0
_MEMORY: Final = "512M"
_PACKETS_PER_S: Final = 1_000
"""What a kernel in a process carries beside the programs that measure it."""

_INIT: Final = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run
mount -t hostfs -o {directory} none {directory}
ip link set lo up
cd {repository}
export PYTHONPATH={repository} PYTHONDONTWRITEBYTECODE=1 TMPDIR=/run
{python} -m lab.netem.trial.uml_guest --shaper tc --packets-per-s {packets_per_s} \\
  --json {directory}/netem.json
echo $? > {directory}/status
sync
exec {python} -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)'
"""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lab.netem.trial.uml", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("out/netem.json"))
    arguments = parser.parse_args()
    kernel = next((found for name in _KERNELS if (found := shutil.which(name))), None)
    if kernel is None or not _MODULES.is_dir() or shutil.which("insmod") is None:
        print(
            "netem trial: SKIPPED: no User-Mode Linux here; on Debian, apt-get install user-mode-linux kmod",
            file=sys.stderr,
        )
        sys.exit(CANNOT)
    interruptible()
    with tempfile.TemporaryDirectory(prefix="kvcompass-uml-") as directory:
        status = _boot(kernel, Path(directory))
        figures = Path(directory) / "netem.json"
        if figures.exists():
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(figures.read_text("utf-8"), "utf-8")
    sys.exit(status)


def _boot(kernel: str, directory: Path) -> int:
    """Runs the trial in a guest; returns the trial's exit status, 1 when the guest came to none."""
    init = directory / "init"
    init.write_text(
        _INIT.format(
            directory=directory,
            repository=Path(__file__).parents[3],
            python=Path(sys.executable).resolve(),
            packets_per_s=_PACKETS_PER_S,
        ),
        "utf-8",
    )
    init.chmod(0o755)
    root = ("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}")
    console = ("con=null", "con0=null,fd:1", "quiet", "loglevel=2")
    command = (kernel, f"mem={_MEMORY}", f"uml_dir={directory}", *root, *console, SSE_ONLY)
    guest = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        cwd=directory,
        preexec_fn=refuse_wide_registers,
    )
    try:
        guest.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print(f"netem trial: the guest did not end within {_TIMEOUT_S:g} s", file=sys.stderr)
    except KeyboardInterrupt:
        print("netem trial: interrupted", file=sys.stderr)
    finally:
        if guest.poll() is None:
            os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()
    status = directory / "status"
    return int(status.read_text("ascii")) if status.exists() else 1


if __name__ == "__main__":
    main()
