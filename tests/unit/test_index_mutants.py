"""The laws of the index notice a writer that is broken in one place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.index_mutants import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_laws_notice(mutant: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.index_mutants", mutant],
        cwd=ROOT,
        env=os.environ | {"KVCOMPASS_JIT": "0"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == (1 if mutant == "none" else 0)
