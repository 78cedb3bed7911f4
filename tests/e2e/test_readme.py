"""The README's examples are run as they stand, against a lab that `kvcompass lab up` keeps up."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcompass.plan import parse_plan

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
READY_S = 150.0
DIRECT = {**os.environ, "no_proxy": "127.0.0.1"}
"""What a reader behind a proxy has set."""


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language, without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


@pytest.fixture(scope="module")
def endpoints(no_shared_lab: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file that a lab writes once it is up."""
    path = tmp_path_factory.mktemp("lab") / "lab.env"
    command = [sys.executable, "-m", "cli", "lab", "up", "--env", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + READY_S
            while not path.exists():
                assert process.poll() is None, process.stdout.read() if process.stdout else ""
                assert time.monotonic() < deadline, "the lab did not come up"
                time.sleep(0.2)
            yield path
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert not path.exists(), "a lab that is gone leaves no endpoints"


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, env=DIRECT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_the_curl_examples_show_who_answered_and_why(endpoints: Path) -> None:
    (example,) = [block for block in blocks("sh") if "curl" in block]
    script = "set -euo pipefail\n" + example.replace("out/lab.env", str(endpoints))
    shown = run(["bash", "-c", script], ROOT)
    assert len(re.findall(r"^HTTP/1.1 200 OK", shown, re.MULTILINE)) == 2
    assert len(re.findall(r"^x-kvcompass-worker: worker-", shown, re.MULTILINE)) == 2
    assert shown.count('"reason"') >= 1
    assert shown.count('"score_ms"') >= 6, "every worker's terms are shown"


@pytest.mark.timeout(300)
def test_the_openai_example_prints_an_answer(endpoints: Path) -> None:
    (example,) = blocks("python")
    script = f'. {endpoints}; {sys.executable} -c "$EXAMPLE"'
    environment = {**DIRECT, "EXAMPLE": example}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 2


def test_the_plan_commands_accept_the_example_plan(tmp_path: Path) -> None:
    (commands,) = [block for block in blocks("sh") if "plan assign" in block]
    plan = (ROOT / "deploy/plans/three-regions.toml").read_text("utf-8")
    (tmp_path / "fleet.toml").write_text(re.sub(r"^(table|slot) = .*\n", "", plan, flags=re.MULTILINE))
    for line in commands.splitlines():
        words = line.partition("#")[0].split()
        if words[0] == ".":
            continue
        assert words[0] == "kvcompass"
        run([sys.executable, "-m", "cli", *words[1:]], tmp_path)
    assert len(parse_plan((tmp_path / "fleet.toml").read_text("utf-8")).workers) == 6


def test_the_two_commands_and_the_lab_are_targets_of_make() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test", "lab"} <= named
    assert named <= set(targets)


def test_the_engines_flags_and_the_example_plan_name_the_same_ports() -> None:
    plan = parse_plan((ROOT / "deploy/plans/three-regions.toml").read_text("utf-8"))
    for place, endpoint in (
        ("endpoint", plan.workers[0].events),
        ("replay_endpoint", plan.workers[0].replay),
    ):
        port = endpoint.rpartition(":")[2]
        assert f'"{place}":"tcp://*:{port}"' in README
