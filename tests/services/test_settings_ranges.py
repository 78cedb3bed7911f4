"""Numbers of settings that cannot work are refused by name at the start, and those that can are taken."""

import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.edge.settings import EdgeSettings
from services.edge.settings import check_settings as check_edge
from services.maintenance.settings import MaintenanceSettings, unit_bounds
from services.runtime.settings import CommonSettings, SettingsError, check_range, load_settings
from services.worker_agent.settings import WorkerAgentSettings, check_periods
from services.worker_agent.settings import check_settings as check_agent

PLAN = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"
ROLES: dict[str, tuple[type[CommonSettings], str, Any]] = {
    "unit": (MaintenanceSettings, 'id = "u"', unit_bounds),
    "edge": (EdgeSettings, 'id = "e"\nlab_mode = true\npeer_key = "0123456789abcdef"', check_edge),
    "agent": (WorkerAgentSettings, 'workers = ["w"]', check_agent),
}


def check(folder: Path, role: str, section: str, lines: str) -> None:
    """As the role's start does."""
    cls, mine, checked = ROLES[role]
    path = folder / "s.toml"
    path.write_text(f'plan = "p"\n{mine}\n[{section}]\n{lines}\n')
    checked(load_settings(cls, path))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "0"])
@pytest.mark.parametrize(
    ("role", "field"),
    [
        *(("unit", f"bounds.{name}") for name in ("flush_ms", "hello_timeout_s", "drain_s")),
        *(
            ("edge", f"timeouts.{name}_s")
            for name in ("connect", "body", "first_byte", "answer", "idle", "total")
        ),
    ],
)
def test_a_time_is_finite_and_above_0(tmp_path: Path, role: str, field: str, value: str) -> None:
    section, _, name = field.partition(".")
    with pytest.raises(SettingsError, match="must be") as caught:
        check(tmp_path, role, section, f"{name} = {value}")
    assert caught.value.field == field


@pytest.mark.parametrize("value", ["nan", "inf", "-0.1"])
@pytest.mark.parametrize("name", ["drain_s", "unready_s", "suspect_s"])
def test_an_edge_may_leave_out_a_wait_but_not_wait_for_ever(tmp_path: Path, name: str, value: str) -> None:
    check(tmp_path, "edge", "timeouts", f"{name} = 0")
    with pytest.raises(SettingsError, match="finite and at least 0") as caught:
        check(tmp_path, "edge", "timeouts", f"{name} = {value}")
    assert caught.value.field == f"timeouts.{name}"


@pytest.mark.parametrize(
    ("role", "field", "taken", "refused"),
    [
        ("unit", "bounds.log_groups", "1", "0"),
        ("unit", "bounds.log_bytes", "1_048_576", "1_048_575"),
        ("unit", "bounds.watermark_period_ms", "1_000", "1_001"),
        ("unit", "bounds.flush_ms", "100", "100.1"),
        ("unit", "bounds.hello_timeout_s", "60", "60.1"),
        ("unit", "bounds.hello_timeout_s", "1", "0.9"),
        ("edge", "limits.attempts", "1", "0"),
        ("edge", "relay.log_groups", "1", "0"),
        ("agent", "engine.load_period_ms", "1", "0"),
        ("agent", "engine.load_timeout_ms", "50", "49"),
        ("agent", "engine.event_timeout_ms", "50", "49"),
        ("agent", "engine.stalled_ms", "2_000", "1_999"),
        ("agent", "streams.answer_timeout_ms", "50", "49"),
        ("agent", "streams.write_timeout_ms", "50", "49"),
        ("agent", "streams.pending_keys", "1_024", "1_023"),
        ("agent", "memory.blocks", "1_024", "1_023"),
        ("agent", "self_test.answer_timeout_ms", "50", "49"),
        ("agent", "replica.running_most", "0", "-1"),
        ("agent", "replica.spare_percent", "100", "101"),
    ],
)
def test_a_range_ends_where_it_is_said_to(
    tmp_path: Path, role: str, field: str, taken: str, refused: str
) -> None:
    section, _, name = field.partition(".")
    check(tmp_path, role, section, f"{name} = {taken}")
    with pytest.raises(SettingsError, match="must be") as caught:
        check(tmp_path, role, section, f"{name} = {refused}")
    assert caught.value.field == field


@pytest.mark.parametrize("longer", ["first_byte_s", "answer_s"])
def test_a_whole_request_has_the_time_of_one_attempt(tmp_path: Path, longer: str) -> None:
    check(tmp_path, "edge", "timeouts", f"{longer} = 900")
    with pytest.raises(SettingsError, match=f"{longer}, 901") as caught:
        check(tmp_path, "edge", "timeouts", f"{longer} = 901")
    assert caught.value.field == "timeouts.total_s"


@pytest.mark.parametrize("name", ["load_period_ms", "metrics_period_ms"])
def test_a_load_is_asked_for_often_enough_to_renew_a_lease(name: str) -> None:
    engine = {"kind": "vllm", name: 501}
    settings = msgspec.convert({"plan": "p", "workers": ["w"], "engine": engine}, WorkerAgentSettings)
    check_periods(settings, 3_006)
    with pytest.raises(SettingsError, match="at most 500") as caught:
        check_periods(settings, 3_005)
    assert caught.value.field == f"engine.{name}"


def test_an_agent_of_sglang_serves_a_plan_of_a_short_lease_by_default() -> None:
    check_periods(msgspec.convert({"plan": "p", "workers": ["w"]}, WorkerAgentSettings), 600)


def test_the_agents_start_looks_at_the_plans_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f'plan = "{PLAN}"\nworkers = ["worker-us-0"]\n[engine]\nload_period_ms = 501\n')
    monkeypatch.setattr("sys.argv", ["agent", "--settings", str(path)])
    with pytest.raises(SystemExit):
        importlib.import_module("services.worker_agent.__main__").main()
    output = capfd.readouterr()
    assert f"{path}: engine.load_period_ms: 501" in output.out + output.err


def test_what_is_no_number_has_no_range() -> None:
    class Section(msgspec.Struct):
        name: str = ""
        switch: bool = False
        seed: int | None = None
        share: float = 0.5

    check_range("section", Section())
    with pytest.raises(SettingsError, match=r"must be in 0.1 to 0.4") as caught:
        check_range("section", Section(), {"share": (0.1, 0.4)})
    assert caught.value.field == "section.share"
    with pytest.raises(AssertionError):
        check_range("section", Section(), {"shore": (0.1, 0.4)})
