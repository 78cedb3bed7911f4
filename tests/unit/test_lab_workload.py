"""Workloads: the same seed gives the same sequence, shares are what a naive count says, errors name files."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.workload.corpus import CorpusError
from lab.workload.excerpts import parts
from lab.workload.folder import read_folder
from lab.workload.schedule import Shape, build_workload
from lab.workload.shares import prefix_shares
from lab.workload.source import load_corpus
from lab.workload.synthetic import synthetic_corpus

CORPUS = synthetic_corpus(seed=7)


def test_the_same_seed_gives_the_same_sequence_and_another_one_does_not() -> None:
    first, second = (build_workload(synthetic_corpus(3), Shape(requests=60, seed=3)) for _ in range(2))
    assert first == second
    assert first.requests != build_workload(synthetic_corpus(3), Shape(requests=60, seed=4)).requests


@given(requests=st.integers(1, 120), seed=st.integers(0, 2**32), duration=st.floats(100.0, 60_000.0))
@settings(max_examples=30, deadline=None)
def test_a_sequence_is_complete_ordered_and_within_its_duration(
    requests: int, seed: int, duration: float
) -> None:
    workload = build_workload(CORPUS, Shape(requests=requests, seed=seed, duration_ms=duration))
    assert len(workload.requests) == requests
    assert [request.id for request in workload.requests] == [f"r{n:04d}" for n in range(requests)]
    times = [request.at_ms for request in workload.requests]
    assert times == sorted(times)
    assert 0.0 <= times[0] <= times[-1] < duration


def test_every_region_asks_about_the_same_texts() -> None:
    workload = build_workload(CORPUS, Shape(requests=240))
    families = {
        region: {request.family for request in workload.requests if request.region == region}
        for region in ("us", "eu", "asia")
    }
    for one, other in itertools.combinations(families.values(), 2):
        assert one & other


def test_packaged_texts_say_that_they_are_synthetic() -> None:
    assert load_corpus({}, seed=1).source == "synthetic"


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=8), st.sampled_from(["us", "eu"])), max_size=30),
    st.integers(1, 6),
)
def test_shares_equal_a_naive_count(prompts: list[tuple[list[int], str]], threshold: int) -> None:
    tokens = [np.array(prompt, dtype=np.int32) for prompt, _ in prompts]
    shares = prefix_shares(tokens, [region for _, region in prompts], threshold)
    shared = elsewhere = 0
    for index, (prompt, region) in enumerate(prompts):
        givers = {
            other_region
            for other, other_region in prompts[:index]
            if common_prefix(prompt, other) >= threshold
        }
        shared += bool(givers)
        elsewhere += bool(givers) and region not in givers
    assert (shares.shared, shares.shared_elsewhere_only) == (shared, elsewhere)
    assert shares.prompt_tokens == sum(len(prompt) for prompt, _ in prompts)


def common_prefix(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@given(st.text(alphabet="ab. \n", max_size=400), st.integers(2, 60))
def test_parts_are_consecutive_and_bounded(text: str, characters: int) -> None:
    pieces = list(parts(text, characters))
    assert text.startswith("".join(pieces))
    assert all(len(piece) <= characters for piece in pieces)
    assert len(text) - sum(map(len, pieces)) < max(1, characters // 2)
    assert pieces


def write_folder(folder: Path) -> Path:
    def put(name: str, content: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")

    api = {
        "category_name": "Ships",
        "tool_name": "Ferry",
        "api_name": "Times",
        "api_description": "Departures",
        "required_parameters": [{"name": "port", "type": "STRING", "description": "Where"}],
        "optional_parameters": [],
    }
    document = {"title": "A walk", "input": "Left, then right.\n" * 40, "qa_pairs": "[{'Q': 'Where to?'}]"}
    put("text/loogle/qa.jsonl", json.dumps(document) + "\n")
    put("text/toolbench/stabletoolbench_x.json", json.dumps([{"api_list": [api], "query": "When?"}]))
    put("text/mbpp/mbpp.jsonl", json.dumps({"prompt": "def f(): ..."}) + "\n")
    put("text/exercism/bob.md", "Be Bob.")
    for role in ("solve_with_cot", "coding_master"):
        put(f"prompts/fabric/{role}.md", f"# {role}")
    return folder


def test_a_folder_gives_documents_agents_with_tools_and_problems(tmp_path: Path) -> None:
    corpus = read_folder(write_folder(tmp_path))
    assert [document.questions for document in corpus.documents] == [("Where to?",)]
    assert corpus.agents[0].tools[0]["function"]["name"] == "Ferry_Times"
    assert corpus.agents[0].tools[0]["function"]["parameters"]["required"] == ["port"]
    assert corpus.agents[0].tasks == ("When?",)
    assert corpus.problems == ("def f(): ...", "Be Bob.")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text/loogle/qa.jsonl", None),
        ("text/loogle/qa.jsonl", "{"),
        ("text/loogle/qa.jsonl", "[]"),
        ("text/toolbench/stabletoolbench_x.json", "{}"),
        ("text/toolbench/stabletoolbench_x.json", "[{}]"),
        ("text/mbpp/mbpp.jsonl", '{"prompt": 1}'),
        ("prompts/fabric/coding_master.md", None),
    ],
)
def test_what_is_missing_or_malformed_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    path = write_folder(tmp_path) / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content, "utf-8")
    with pytest.raises(CorpusError) as caught:
        read_folder(tmp_path)
    assert str(path if content is not None or path.suffix == ".md" else path.parent) in str(caught.value)


def test_a_variable_that_names_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="KVCOMPASS_DATA"):
        load_corpus({"KVCOMPASS_DATA": str(tmp_path / "nowhere")}, seed=1)


@pytest.mark.data
def test_the_real_folder_gives_a_sequence() -> None:
    folder = os.environ.get("KVCOMPASS_DATA")
    if not folder:
        pytest.skip("KVCOMPASS_DATA is not set")
    workload = build_workload(read_folder(Path(folder)), Shape(requests=50))
    assert {request.kind for request in workload.requests} == {"document", "agent", "programming"}
