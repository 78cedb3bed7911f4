"""docs/simulator.md: its examples run, and it explains every option and figure."""

import argparse
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from cli import simulate
from cli.__main__ import main
from simulator.experiments.document import as_json, provenance
from simulator.results.figures import RunFigures
from simulator.results.metrics import ALL_METRICS
from simulator.results.parts import Parts

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "simulator.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", blocks("sh"))
def test_its_examples_run(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (trace,) = blocks("jsonl")
    Path("mine.jsonl").write_text(trace, "utf-8")
    program, *arguments = example.split()
    assert program == "kvcompass"
    # As it stands, but with fewer requests, and without processes that would take long to begin.
    fewer = " ".join(arguments).replace("--seed 1 2 3", "--seed 1 2")
    fewer = re.sub(r"--requests \d+", "--requests 60", fewer)
    fewer = re.sub(r"--seconds \d+ \d+", "--seconds 0 0", fewer)
    assert main([*fewer.split(), "--jobs", "1"]) == 0
    assert "KVCompass" in capsys.readouterr().out
    for written in re.findall(r"--(?:json|png) (\S+)", example):
        assert Path(written).stat().st_size > 0
    if "mine.jsonl" in example:
        document = json.loads(Path("out/mine.json").read_text("utf-8"))
        assert [run["figures"]["requests"] for run in document["runs"]] == [5, 5]
        _, regional = (run["figures"] for run in document["runs"])
        turn, last = (20_000 + 40 + 119) // 64 * 64, 15_000 // 64 * 64
        assert regional["reused_tokens"] == turn + last, "of the first request, and what the second left"
        assert "recorded times" in document["runs"][0]["source"]


def test_it_explains_every_option() -> None:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser.add_subparsers())
    command = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ).choices["simulate"]
    options = [name for action in command._actions for name in action.option_strings if name.startswith("--")]
    assert len(options) > 20
    assert [
        name for name in options if name != "--help" and f"`{name}" not in TEXT and f"{name}`" not in TEXT
    ] == []


def test_it_explains_every_line_of_the_table() -> None:
    explained = TEXT[TEXT.index("## How to read the table") : TEXT.index("## The figures as JSON")]
    heads = " ".join(re.findall(r"^\| (.*?) \|", explained, re.MULTILINE)) + explained
    for metric in ALL_METRICS:
        words = re.split(r", |(?<=TTFT) ", metric.title)[0]
        assert words in heads, metric.title


def test_it_explains_every_field_of_the_json() -> None:
    explained = TEXT[TEXT.index("## The figures as JSON") : TEXT.index("## Sweeps")]
    document = provenance("code") | as_json([], [], {})
    figures = [field.name for field in fields(RunFigures)]
    parts = [field.name for field in fields(Parts)]
    assert [name for name in (*document, *figures, *parts) if f"`{name}`" not in explained] == []
