"""What holds for every test."""

import pytest


@pytest.fixture(autouse=True)
def recorded_data_is_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests marked `data` see the folder of KVCOMPASS_DATA: all others are the same everywhere."""
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("KVCOMPASS_DATA", raising=False)
