"""The example settings are those of the example plan, and a service would take them."""

import importlib
import shutil
from pathlib import Path

import pytest

from services.edge.requests.callers import Callers
from services.edge.settings import EdgeSettings
from services.edge.settings import check_settings as check_edge
from services.maintenance.settings import MaintenanceSettings, unit_bounds
from services.runtime.plan_file import load_plan
from services.runtime.settings import CommonSettings, SettingsError, load_settings, resolve_path
from services.worker_agent.settings import WorkerAgentSettings
from services.worker_agent.settings import check_settings as check_agent
from tests.models.example_plan import THREE_REGIONS

_DEPLOY = Path(__file__).parents[2] / "deploy"
_SETTINGS = _DEPLOY / "settings"
_FILES = {
    "edge.toml": EdgeSettings,
    "maintenance.toml": MaintenanceSettings,
    "worker-agent.toml": WorkerAgentSettings,
}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The examples beside the files that they name."""
    shutil.copytree(_SETTINGS, tmp_path / "settings")
    shutil.copytree(_DEPLOY / "plans", tmp_path / "plans")
    secrets = tmp_path / "settings" / "secrets"
    secrets.mkdir()
    (secrets / "peer.key").write_text("a secret of some length\n", "utf-8")
    return tmp_path / "settings"


def test_every_service_has_an_example() -> None:
    assert {path.name for path in _SETTINGS.iterdir()} == set(_FILES)


@pytest.mark.parametrize("name", _FILES)
def test_they_name_the_example_plan(name: str, installed: Path) -> None:
    path = installed / name
    settings: CommonSettings = load_settings(_FILES[name], path)
    assert load_plan(resolve_path(path, settings.plan)) == THREE_REGIONS
    assert settings.tls is not None
    assert not settings.insecure, "nobody serves in plain text because an example does"


def test_no_secret_is_an_examples() -> None:
    with pytest.raises(SettingsError, match="secrets/peer"):
        load_settings(EdgeSettings, _SETTINGS / "edge.toml")


def test_the_edge_takes_its_own(installed: Path) -> None:
    settings = load_settings(EdgeSettings, installed / "edge.toml")
    check_edge(settings)
    Callers(settings, THREE_REGIONS)
    assert settings.id in {edge.id for edge in THREE_REGIONS.edges}


def test_the_unit_takes_its_own(installed: Path) -> None:
    settings = load_settings(MaintenanceSettings, installed / "maintenance.toml")
    unit_bounds(settings)
    assert settings.id in {unit.id for unit in THREE_REGIONS.units}


def test_the_agent_takes_its_own(installed: Path) -> None:
    settings = load_settings(WorkerAgentSettings, installed / "worker-agent.toml")
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
