"""Settings of the double: faults are named, nothing bad becomes a default."""

from pathlib import Path
from typing import Any

import pytest

from services.mock_sglang.__main__ import _settings
from services.mock_sglang.settings import MockSettings
from services.runtime.settings import SettingsError


def test_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mock.toml"
    file.write_text('model = "m"\npage_size = 32\n[timing]\ndecode_ms = 5.0\n')
    settings = _settings(file, {"time_scale": 0.5})
    assert (settings.page_size, settings.time_scale) == (32, 0.5)
    config = settings.engine_config()
    assert config.page_size == 32
    assert config.timing.decode_ms == 5.0


def test_the_file_may_be_left_out() -> None:
    assert _settings(None, {"model": "m"}) == MockSettings(model="m")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "settings"),
        ({"model": "m", "page_size": 0}, "page_size"),
        ({"model": "m", "time_scale": -1.0}, "time_scale"),
        ({"model": "m", "time_scale": float("nan")}, "time_scale"),
        ({"model": "m", "health_delay_s": -1.0}, "health_delay_s"),
        ({"model": "m", "health_delay_s": float("nan")}, "health_delay_s"),
        ({"model": "m", "transfer_timeout_s": float("inf")}, "transfer_timeout_s"),
        ({"model": "m", "dp_size": 10**9}, "dp_size"),
        ({"model": "m", "bootstrap_port": 65_536}, "bootstrap_port"),
        ({"model": "m", "event_ring_batches": 10**30}, "event_ring_batches"),
        ({"model": "m", "timing": {"decode_ms": 1e300}}, "timing.decode_ms"),
        ({"model": "m", "timing": {"decode_ms": -1.0}}, "timing.decode_ms"),
        ({"model": "m", "cache_tokens": 15}, "cache_tokens"),
        ({"model": "m", "host_cache_tokens": 15}, "host_cache_tokens"),
        ({"model": "m", "replay_endpoint": "tcp://127.0.0.1:*"}, "replay_endpoint"),
        ({"model": "m", "load_publish_endpoint": "tcp://127.0.0.1:*"}, "load_publish_endpoint"),
        ({"model": "m", "unknown": 1}, "settings"),
    ],
)
def test_faults_are_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _settings(None, given)
    assert caught.value.field == field
