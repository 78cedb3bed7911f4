"""What a trace could reuse, from the command line."""

import json
from pathlib import Path

import pytest

from simulator.experiments import trace_reuse

TRACE = Path(__file__).parents[1] / "fixtures" / "traces" / "mooncake.jsonl"


def test_it_counts_the_blocks_that_came_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert trace_reuse.main([str(TRACE), "--json", str(out)]) == 0
    seen: set[int] = set()
    reused = full = 0
    for line in TRACE.open():
        row = json.loads(line)
        ids = row["hash_ids"][: row["input_length"] // 512]
        reused += next((i for i, one in enumerate(ids) if one not in seen), len(ids))
        full += len(ids)
        seen.update(ids)
    found = json.loads(out.read_text())
    assert (found["ideal"]["reused_blocks"], found["ideal"]["blocks"]) == (reused, full)
    assert reused > 0
    assert len(found["across_regions"]) == 4
    assert f"{reused:,} of {full:,} full blocks" in capsys.readouterr().out


def test_another_form_is_refused_for_what_it_lacks_and_not_for_its_regions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert trace_reuse.main([str(TRACE.with_name("plain.jsonl"))]) == 2
    assert "plain.jsonl, line 1, timestamp: missing" in capsys.readouterr().err


def test_a_trace_that_is_not_there_is_an_error_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert trace_reuse.main(["/nowhere/trace.jsonl"]) == 2
    assert "/nowhere/trace.jsonl" in capsys.readouterr().err
