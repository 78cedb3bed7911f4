"""The example settings are those of the example plan, and a service would take them."""

import importlib
from pathlib import Path

import pytest

from services.edge.requests.callers import Callers
from services.edge.settings import EdgeSettings
from services.edge.settings import check_settings as check_edge
from services.maintenance.settings import MaintenanceSettings, unit_bounds
from services.runtime.plan_file import load_plan
from services.runtime.settings import CommonSettings, load_settings, resolve_path
from services.worker_agent.settings import WorkerAgentSettings
from services.worker_agent.settings import check_settings as check_agent
from tests.models.example_plan import THREE_REGIONS

_SETTINGS = Path(__file__).parents[2] / "deploy" / "settings"
_FILES = {
    "edge.toml": EdgeSettings,
    "maintenance.toml": MaintenanceSettings,
    "worker-agent.toml": WorkerAgentSettings,
}


def test_every_service_has_an_example() -> None:
    assert {path.name for path in _SETTINGS.iterdir()} == set(_FILES)


@pytest.mark.parametrize("name", _FILES)
def test_they_name_the_example_plan(name: str) -> None:
    path = _SETTINGS / name
    settings: CommonSettings = load_settings(_FILES[name], path)
    assert load_plan(resolve_path(path, settings.plan)) == THREE_REGIONS


def test_the_edge_takes_its_own() -> None:
    settings = load_settings(EdgeSettings, _SETTINGS / "edge.toml")
    check_edge(settings)
    Callers(settings, THREE_REGIONS)
    assert settings.id in {edge.id for edge in THREE_REGIONS.edges}


def test_the_unit_takes_its_own() -> None:
    settings = load_settings(MaintenanceSettings, _SETTINGS / "maintenance.toml")
    unit_bounds(settings)
    assert settings.id in {unit.id for unit in THREE_REGIONS.units}


def test_the_agent_takes_its_own() -> None:
    settings = load_settings(WorkerAgentSettings, _SETTINGS / "worker-agent.toml")
    check_agent(settings)
    assert set(settings.workers) <= {worker.id for worker in THREE_REGIONS.workers}


@pytest.mark.parametrize("service", ["edge", "maintenance", "worker_agent"])
def test_help_says_where_the_fields_are(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [service, "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module(f"services.{service}.__main__").main()
    assert f"fields in services/{service}/settings.py" in " ".join(capsys.readouterr().out.split())
