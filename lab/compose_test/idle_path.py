"""A prompt of 64 KB after a silence, between the containers of two edges."""

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from kvcompass.plan.model import Plan
from lab.compose_test.engine import Compose, EngineError
from lab.compose_test.front import StepFailedError

_MODULE = ("python", "-m", "lab.netem.idle_path")
_LIMIT_S = 120.0
_LISTENS_S = 20.0
"""The server listens by then."""


def cross_after_silence(compose: Compose, plan: Plan, origin: str, destination: str) -> Mapping[str, Any]:
    """What `lab.netem.idle_path` measured. Errors: StepFailedError when the prompt took too long."""
    edges = {edge.region: edge for edge in plan.edges}
    server = threading.Thread(target=_serve, args=(compose, edges[destination].id), daemon=True)
    server.start()
    host = edges[destination].peer_address.rsplit(":", 1)[0]
    deadline = time.monotonic() + _LISTENS_S
    while True:
        try:
            measured = compose.execute(edges[origin].id, *_MODULE, "client", host, timeout_s=_LIMIT_S)
            break
        except EngineError as error:
            if "ConnectionRefusedError" not in str(error) or time.monotonic() > deadline:
                raise StepFailedError(f"64 KB from {origin} to {destination}: {error}") from error
            time.sleep(0.5)
    server.join(timeout=_LIMIT_S)
    figures: Mapping[str, Any] = json.loads(measured)
    return figures


def _serve(compose: Compose, service: str) -> None:
    # Without a server the client fails, and says so.
    with contextlib.suppress(EngineError):
        compose.execute(service, *_MODULE, "server", timeout_s=_LIMIT_S)
