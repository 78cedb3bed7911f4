"""Engines take the commands that the deploy page and the container fleet start them with."""

import json
import os
import re
import shlex
import subprocess

import pytest
import yaml

from tests.engines.real.homes import RELEASES, ROOT
from tests.engines.real.server import environment

pytestmark = [pytest.mark.timeout(300)]

REAL = [name for name in os.environ.get("KVCOMPASS_ENGINES", "").split() if name.startswith("sglang")]
SINCE = dict.fromkeys(
    (
        "--load-publish-endpoint",
        "--load-snapshot-publish-interval",
        "--disaggregation-decode-enable-radix-cache",
    ),
    (0, 5, 23),
)
"""Flags of the page that 0.5.10 does not have."""
VALUES = {
    "--page-size": "64",
    "--served-model-name": "NAME",
    "--context-length": "32768",
    "--kv-events-config": "{}",
    "--radix-eviction-policy": "lru",
    "--api-key": "KEY",
    "--chunked-prefill-size": "8192",
    "--stream-interval": "1",
    "--load-snapshot-publish-interval": "15",
    "--hicache-size": "1",
    "--hicache-storage-backend": "file",
    "--disaggregation-bootstrap-port": "8998",
    "--dp-size": "2",
}
"""Of flags that the page names without a value, or with a placeholder."""
_PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
for command in json.loads(sys.argv[1]):
    parser.parse_args(command)
"""


def page() -> str:
    return (ROOT / "docs" / "deploy-engines.md").read_text("utf-8")


def command_of_the_page() -> list[str]:
    """The console block that starts SGLang, without the program."""
    (block,) = re.findall(r"```console\n(python -m sglang\.launch_server .*?)```", page(), re.DOTALL)
    return shlex.split(block.replace("\\\n", ""))[3:]


def command_of_the_containers() -> list[str]:
    """What an engine of the profile gpu is started with, without the program."""
    file = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text("utf-8"))
    filled = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", part) for part in file["x-gpu"]["command"]]
    return filled[3:]


def flags_of_the_page(version: tuple[int, ...]) -> list[str]:
    """Flags that the SGLang part of the page names, with their values, if that version has them."""
    values = dict(VALUES)
    for span in re.findall(r"`(--[^`]+)`", page().partition("## vLLM")[0]):
        for flag, _, value in (part.partition(" ") for part in re.split(r" (?=--)", span)):
            values.setdefault(flag, value)
    named = {flag: value for flag, value in values.items() if SINCE.get(flag, version) <= version}
    return [part for flag, value in named.items() for part in (flag, value) if part]


@pytest.mark.skipif(not REAL, reason="make test-engines")
@pytest.mark.parametrize("name", REAL)
def test_a_version_takes_every_flag_that_it_is_said_to_have(name: str) -> None:
    release = RELEASES[name]
    flags = ["--model-path", "MODEL", *flags_of_the_page(release.version_numbers)]
    commands = [command_of_the_page(), command_of_the_containers(), flags]
    ended = subprocess.run(
        (release.python, "-c", _PARSE, json.dumps(commands)),
        env=environment(release),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr[-1_000:]
