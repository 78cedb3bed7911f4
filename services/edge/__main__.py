"""`kvcompass-edge --settings FILE`: runs one edge until SIGTERM."""

import argparse
import gc
from pathlib import Path

from prometheus_client import disable_created_metrics

from services.edge.composition import EdgeService
from services.edge.settings import EdgeSettings, check_settings
from services.runtime.lifecycle import Lifecycle, run
from services.runtime.logs import configure_logging
from services.runtime.plan_file import load_plan
from services.runtime.settings import faults_named, load_settings, resolve_path
from services.runtime.version import add_version


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="kvcompass-edge", description=__doc__)
    add_version(parser)
    parser.add_argument(
        "--settings", type=Path, required=True, help="TOML file; fields in services/edge/settings.py"
    )
    parser.add_argument("--id", help="which edge of the plan this is; goes before the settings' `id`")
    arguments = parser.parse_args()
    # When each series began: half as many series again, which nobody asks for.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
    overrides = {} if arguments.id is None else {"id": arguments.id}

    async def serve(lifecycle: Lifecycle) -> None:
        settings = load_settings(EdgeSettings, arguments.settings, overrides)
        configure_logging("edge", settings.id, settings.log_level)
        plan_path = resolve_path(arguments.settings, settings.plan)
        with faults_named(arguments.settings):
            check_settings(settings)
            service = EdgeService(settings, load_plan(plan_path), plan_path)
        # What was imported and built so far lives as long as the process: no full collection, during which
        # every request waits, need walk through it.
        gc.collect()
        gc.freeze()
        await service.run(lifecycle)

    run(serve)


if __name__ == "__main__":
    main()
