"""`kvcompass-worker-agent --settings FILE`: what engines hold, how busy they are. `doctor` examines one."""

import argparse
import gc
import sys
from pathlib import Path
from typing import Final

from services.runtime.lifecycle import Lifecycle, run
from services.runtime.logs import configure_logging
from services.runtime.plan_file import load_plan
from services.runtime.settings import faults_named, load_settings, resolve_path
from services.runtime.version import add_version
from services.worker_agent.process import AgentProcess
from services.worker_agent.settings import WorkerAgentSettings, check_periods

_GARBAGE_THRESHOLDS: Final = (50_000, 20, 100)
"""A block tree is a large, long-lived heap: walking it as often as Python does costs more than the events."""


_EPILOG: Final = "`kvcompass-worker-agent doctor --help`: examines one engine and says what to change."


def main() -> None:
    """Entry point."""
    if sys.argv[1:2] == ["doctor"]:
        from services.worker_agent.doctor.command import main as doctor  # has a tokenizer; agents have none

        raise SystemExit(doctor(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="kvcompass-worker-agent", description=__doc__, epilog=_EPILOG)
    add_version(parser)
    parser.add_argument(
        "--settings", type=Path, required=True, help="TOML file; fields in services/worker_agent/settings.py"
    )
    parser.add_argument(
        "--workers",
        nargs="+",
        help="which workers of the plan it serves; goes before the settings' `workers`",
    )
    arguments = parser.parse_args(sys.argv[1:])
    path: Path = arguments.settings
    overrides = {} if arguments.workers is None else {"workers": arguments.workers}
    gc.set_threshold(*_GARBAGE_THRESHOLDS)

    async def serve(lifecycle: Lifecycle) -> None:
        settings = load_settings(WorkerAgentSettings, path, overrides)
        configure_logging("worker_agent", ",".join(settings.workers), settings.log_level)
        with faults_named(path):
            plan_path = resolve_path(path, settings.plan)
            plan = load_plan(plan_path)
            check_periods(settings, plan.routing.lease_ms)
            process = AgentProcess(settings, plan, plan_path)
        lifecycle.background(process.run(), "worker agent")
        await lifecycle.stopping.wait()

    run(serve)


if __name__ == "__main__":
    main()
