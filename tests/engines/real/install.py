"""Installs real engines for `make test-engines`: a virtual environment each, in a folder that git ignores.

    python -m tests.engines.real.install sglang-0.5.10 ...

What is installed already is left alone, as long as its lock has not changed.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import time

from tests.engines.real.homes import RELEASES, Release

_TORCH_S = 1_200.0
_REST_S = 900.0


def install(release: Release) -> None:
    """Makes the engine's environment anew, unless it is as it should be. Takes minutes.

    Torch comes without a hash, for the build for CPUs is another file on every index: where pip finds one of
    that version (`PIP_EXTRA_INDEX_URL`, `PIP_FIND_LINKS`), it is taken before the one for GPUs, which works
    too and is some gigabytes larger. Nothing else is resolved: the lock has it all, with hashes.
    """
    wanted = _fingerprint(release)
    mark = release.home / ".installed"
    if mark.exists() and mark.read_text("utf-8") == wanted:
        _say(f"{release.name} is installed in {release.home}")
        return
    began = time.monotonic()
    _say(f"Installing {release.name} into {release.home} (3 GB, some minutes) ...")
    shutil.rmtree(release.home, ignore_errors=True)
    subprocess.run((sys.executable, "-m", "venv", release.home), check=True, timeout=120.0)
    _pip(release, f"torch=={release.torch}", timeout_s=_TORCH_S)
    _pip(release, "--no-deps", "--require-hashes", "-r", str(release.lock), timeout_s=_REST_S)
    mark.write_text(wanted, "utf-8")
    _say(f"{release.name} is installed after {time.monotonic() - began:.0f} s")


def _pip(release: Release, *arguments: str, timeout_s: float) -> None:
    pip = (str(release.python), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    subprocess.run((*pip, *arguments), check=True, timeout=timeout_s)


def _fingerprint(release: Release) -> str:
    content = f"{sys.version_info[:2]} {release.torch}\n".encode() + release.lock.read_bytes()
    return hashlib.sha256(content).hexdigest()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(RELEASES))
    for name in dict.fromkeys(parser.parse_args().names):
        install(RELEASES[name])


if __name__ == "__main__":
    main()
