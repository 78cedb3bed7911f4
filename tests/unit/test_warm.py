"""A process that is warm compiles nothing more: each kernel that anybody but a kernel calls was called."""

import subprocess
import sys

import pytest

from kvcompass.kernels.jit import JIT

COLD = """
import importlib, pkgutil
import kvcompass
from kvcompass.warm import warm

warm()
for found in pkgutil.walk_packages(kvcompass.__path__, "kvcompass."):
    if not found.name.startswith("kvcompass.kernels."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if not getattr(value, "signatures", True):
                print(found.name, name)
"""


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_warming_calls_every_kernel_that_has_a_caller() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLD], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == ""
