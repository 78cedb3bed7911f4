"""The simulator's benchmark measures what it says."""

import pytest

from bench.simulator import AIMS, Speed, measure, table


def test_a_run_is_measured_in_a_process_of_its_own() -> None:
    found = measure("testbed-14", 300, faithful=False, policy="random")
    assert found.requests == 300
    assert found.cpu_s > 0.0
    assert found.wall_s > 0.0
    assert 0.05 < found.peak_gb < 2.0
    assert found.requests_per_s("cpu") == pytest.approx(300 / found.cpu_s)
    assert found.requests_per_s("wall") == pytest.approx(300 / found.wall_s)


def test_memory_is_that_of_the_run_whatever_its_parent_had() -> None:
    held = b"x" * 2_500_000_000
    found = measure("testbed-14", 20, faithful=False, policy="random")
    del held
    assert found.peak_gb < 2.0


def test_the_table_has_what_is_promised_beside_what_was_found() -> None:
    speed = Speed(requests=1_000, wall_s=0.5, cpu_s=0.25, setup_s=9.0, peak_gb=1.5)
    shown = table(dict.fromkeys((*AIMS, "growth x", "memory"), speed), "cpu").splitlines()
    assert len(shown) == 1 + len(AIMS) + 2
    for line in shown[1:]:
        assert "4,000" in line, "requests a second of processor time"
        assert "1.50" in line
    for name, aim in AIMS.items():
        (line,) = (line for line in shown if line.startswith(name))
        assert f">= {aim:,.0f} requests/s" in line
    assert "< 3 GB at 500,000" in shown[-1]
