"""Where an engine has its page of metrics."""

from typing import Final, Protocol

from services.worker_agent.engine_client import NotThereError

PAGE_BYTES: Final = 8 << 20
"""Sixteen ranks' histograms take one."""
_PATHS: Final = ("/metrics/", "/metrics")
"""Engines mount the page, so that one of the two is a redirect to the other."""


class AsksBytes(Protocol):
    """HTTP to one engine."""

    async def get_bytes(self, path: str, most: int) -> bytes:
        """Ask for at most so many bytes. Errors: EngineError; NotThereError where it is not."""


class MetricsRoute:
    """Remembers which of the two it is."""

    def __init__(self) -> None:
        self._path = _PATHS[0]

    async def page(self, client: AsksBytes) -> bytes:
        """The page now. Errors: EngineError; NotThereError when the engine has none."""
        try:
            return await client.get_bytes(self._path, PAGE_BYTES)
        except NotThereError:
            self._path = _PATHS[1 - _PATHS.index(self._path)]
            return await client.get_bytes(self._path, PAGE_BYTES)
