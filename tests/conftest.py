"""What holds for every test."""

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")
"""No test fails because a machine is busy. CI draws the same examples each time, so that none is refused for
what the change before would have failed by too; every desk draws others."""


@pytest.fixture(autouse=True)
def recorded_data_is_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests marked `data` see the folder of KVCOMPASS_DATA: all others are the same everywhere."""
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("KVCOMPASS_DATA", raising=False)


@pytest.fixture(autouse=True)
def logs_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Services that a test starts in its own process log to its stderr, which is closed after it."""
    configure = structlog.configure

    def uncached(**settings: object) -> None:
        configure(**settings | {"cache_logger_on_first_use": False})  # type: ignore[arg-type]

    monkeypatch.setattr(structlog, "configure", uncached)
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
