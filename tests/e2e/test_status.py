"""`kvcompass status` against real processes: all is true, and a region that is cut off is named."""

import json

import pytest

from cli.__main__ import main
from lab.fleet import Fleet
from tests.e2e.asking import comes_true, hold, new_prompt

pytestmark = pytest.mark.e2e


def test_status_of_a_fleet_that_is_well_and_of_one_that_is_not(
    quick_lab: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(quick_lab.directory / "plan.toml")
    hold(quick_lab, "worker-us-1", new_prompt())

    def status() -> int:
        capsys.readouterr()
        return main(["status", plan, "--json"])

    assert comes_true(lambda: status() == 0, 20.0), capsys.readouterr().out

    def self_tests() -> set[str]:
        status()
        agents = json.loads(capsys.readouterr().out)["components"]
        told = [each["health"]["details"] for each in agents if each["kind"] == "agent"]
        return {worker["self_test"]["result"] for details in told for worker in details.values()}

    assert comes_true(lambda: self_tests() == {"passed"}, 20.0), "engines and edges have the same files"
    _cut(quick_lab, cut=True)
    try:
        assert comes_true(lambda: status() == 1, 20.0)
        found = json.loads(capsys.readouterr().out)["findings"]
        assert any("is stale" in each["what"] for each in found), found
    finally:
        _cut(quick_lab, cut=False)
    assert comes_true(lambda: status() == 0, 20.0), capsys.readouterr().out


def _cut(lab: Fleet, *, cut: bool) -> None:
    """Cuts us and eu off from each other, or heals that."""
    lab.partition("us", "eu", cut=cut)
    lab.partition("eu", "us", cut=cut)
