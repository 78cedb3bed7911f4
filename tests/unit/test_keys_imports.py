"""A sidecar stays small: what an agent imports to make keys brings no compiler with it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import kvcompass.keys, kvcompass.levels, kvcompass.plan, kvcompass.plan.layout
print(sorted({"numba", "llvmlite", "grpc", "asyncio"} & set(sys.modules)))
"""


AGENT = """
import sys
import services.worker_agent.__main__
print(sorted({"numba", "llvmlite", "tokenizers", "jinja2", "fastapi"} & set(sys.modules)))
"""


@pytest.mark.parametrize("program", [PROGRAM, AGENT])
def test_keys_levels_and_plan_and_agents_import_what_they_need_alone(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
