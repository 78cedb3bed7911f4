"""`kvcompass-mock-sglang`: one engine double per process, so that killing one kills one engine."""

import argparse
import gc
from pathlib import Path
from typing import Any

import msgspec

from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from services.runtime.lifecycle import Lifecycle, run
from services.runtime.logs import configure_logging, get_logger
from services.runtime.settings import SettingsError, load_settings

FLAGS: dict[str, type] = {
    "address": str,
    "model": str,
    "tokenizer": str,
    "chat-template": str,
    "context-length": int,
    "page-size": int,
    "cache-tokens": int,
    "max-running-requests": int,
    "max-queued-requests": int,
    "stream-interval": int,
    "time-scale": float,
    "health-delay-s": float,
    "event-endpoint": str,
    "replay-endpoint": str,
    "event-profile": str,
    "load-publish-endpoint": str,
    "dp-size": int,
    "role": str,
    "bootstrap-port": int,
    "host-cache-tokens": int,
    "radix-eviction-policy": str,
    "log-level": str,
}


def main() -> None:
    """Parse the command line and serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="kvcompass-mock-sglang", description=__doc__)
    parser.add_argument("--settings", type=Path, help="TOML file; flags override its fields")
    for flag, kind in FLAGS.items():
        parser.add_argument(f"--{flag}", type=kind, default=None)
    parser.add_argument("--fault-switches", action="store_true", default=None)
    arguments = vars(parser.parse_args())
    file: Path | None = arguments.pop("settings")
    given = {name: value for name, value in arguments.items() if value is not None}
    run(lambda lifecycle: _serve(lifecycle, file, given))


async def _serve(lifecycle: Lifecycle, file: Path | None, given: dict[str, Any]) -> None:
    settings = _settings(file, given)
    configure_logging("mock_sglang", settings.address, settings.log_level)
    base = file.parent if file else Path()
    server = MockServer(settings, PromptEncoder.load(settings.tokenizer, settings.chat_template, base))
    await server.start()
    # Blocks live long and form no cycles; looking through 15,000 of them again and again takes 40 % of the
    # time that caching a prompt takes.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    get_logger("main").info("serving", port=server.port, events=server.event_endpoint)
    await lifecycle.stopping.wait()
    await server.stop()


def _settings(file: Path | None, given: dict[str, Any]) -> MockSettings:
    if file is not None:
        return load_settings(MockSettings, file, given)
    try:
        return msgspec.convert(given, MockSettings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{error}; give it as a flag or in --settings FILE", field="settings") from error


if __name__ == "__main__":
    main()
