"""A sidecar stays small: a running agent has loaded no compiler."""

import subprocess
import sys

PROGRAM = """
import sys
import services.worker_agent.process
print(sorted({"numba", "llvmlite", "tokenizers", "fastapi"} & set(sys.modules)))
"""


def test_the_agent_loads_no_compiler_no_tokenizer_and_no_web_framework() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
