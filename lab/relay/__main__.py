"""The relay process: `python -m lab.relay --settings FILE`."""

import argparse
import sys
from pathlib import Path

from lab.relay.control import ControlApp
from lab.relay.network import Network
from lab.relay.settings import RelaySettings
from services.runtime.http_server import HttpServer
from services.runtime.lifecycle import Lifecycle, run
from services.runtime.logs import configure_logging, get_logger
from services.runtime.settings import load_settings


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lab.relay", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True)
    path: Path = parser.parse_args(sys.argv[1:]).settings

    async def serve(lifecycle: Lifecycle) -> None:
        settings = load_settings(RelaySettings, path)
        configure_logging("relay", "lab", settings.log_level)
        network = Network(settings.wires, settings.links, settings.random_seed)
        await network.start()
        control = HttpServer(ControlApp(network), settings.control_address)
        await control.start()
        get_logger("relay").info("relay is up", links=len(settings.links), control=settings.control_address)
        await lifecycle.stopping.wait()
        await control.stop(drain_s=1.0)
        await network.stop()

    run(serve)


if __name__ == "__main__":
    main()
