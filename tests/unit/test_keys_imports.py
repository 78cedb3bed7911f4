"""A sidecar stays small: what an agent imports to make keys brings no compiler with it."""

import subprocess
import sys

PROGRAM = """
import sys
import kvcompass.keys, kvcompass.levels, kvcompass.plan, kvcompass.plan.layout
print(sorted({"numba", "llvmlite", "grpc", "asyncio"} & set(sys.modules)))
"""


def test_keys_levels_and_plan_import_no_compiler_and_no_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
