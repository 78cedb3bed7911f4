"""Mixed (paper 5.1): ToolBench 50 %, LooGLE 5 %, programming problems 45 %.

A request takes a prompt of its dataset at random, so prompts repeat, as they must where thousands of requests
a second draw on a few hundred published instructions. Of APPS only five problems are at hand: MBPP, HumanEval
and Exercism stand in for the rest.
"""

import gzip
import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bench.ladder.workload import PAGE, Workload, replay
from simulator.workloads.mixed_texts import questions

SHARES = {"toolbench": 0.50, "loogle": 0.05, "programming": 0.45}
REQUESTS = 20_000
_TOOLS = (
    "You can use many tools (functions) to do the task below. At each step give your thought, then call one"
    " function. When the task is done call Finish with an answer that holds all the user needs to know.\n"
)
_PROBLEM = "Write a Python program that solves the problem below. Answer with the program only.\n\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a dataset."""

    tokens: int
    pages: tuple[Hashable, ...]
    """Identities of its whole pages, each depending on those before it."""


def draw(name: str, source: str, datasets: dict[str, Sequence[Prompt]], seed: int = 1) -> Workload:
    """Draw `REQUESTS` prompts by `SHARES` and replay them."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(SHARES), REQUESTS, p=list(SHARES.values()))
    prompts = (datasets[kind][rng.integers(len(datasets[kind]))] for kind in kinds)
    return replay(name, source, ((prompt.tokens, prompt.pages) for prompt in prompts), PAGE)


def mixed(folder: Path) -> Workload:
    """Build Mixed from the texts under a data folder, in tokens of its own tokenizer. Takes about 10 s."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "smollm2_tokenizer.json"))
    text = folder / "text"
    datasets = {
        "toolbench": _prompts(tokenizer, [("", words) for words in _toolbench(text / "toolbench")]),
        "loogle": _prompts(tokenizer, list(_loogle(text / "loogle"))),
        "programming": _prompts(tokenizer, [("", _PROBLEM + words) for words in _programming(text)]),
    }
    sizes = ", ".join(f"{len(prompts):,} {name}" for name, prompts in datasets.items())
    return draw("mixed", f"{REQUESTS:,} requests drawn from {sizes} prompts", datasets)


def _prompts(tokenizer: Tokenizer, texts: list[tuple[str, str]]) -> list[Prompt]:
    """Tokenize (start, rest) of each prompt; a start that many share is tokenized once."""
    starts = sorted({start for start, _ in texts})
    encoded = dict(zip(starts, _encode(tokenizer, starts), strict=True))
    rests = _encode(tokenizer, [rest for _, rest in texts])
    prompts = []
    for (start, _), rest in zip(texts, rests, strict=True):
        tokens = np.concatenate((encoded[start], rest))
        prompts.append(Prompt(tokens.size, _pages(tokens)))
    return prompts


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[NDArray[np.int32]]:
    return [np.array(one.ids, np.int32) for one in tokenizer.encode_batch(texts)]


def _pages(tokens: NDArray[np.int32]) -> tuple[int, ...]:
    chain, pages = 0, []
    for page in tokens[: tokens.size // PAGE * PAGE].reshape(-1, PAGE):
        chain = hash((chain, page.tobytes()))
        pages.append(chain)
    return tuple(pages)


def _toolbench(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("stabletoolbench_*.json")):
        for row in json.loads(file.read_text("utf-8")):
            tools = [{k: v for k, v in api.items() if k != "template_response"} for api in row["api_list"]]
            yield f"{_TOOLS}{json.dumps(tools)}\n{row['query']}"


def _loogle(folder: Path) -> Iterator[tuple[str, str]]:
    wordings = json.loads((folder / "task2prompt.json").read_text("utf-8"))
    for file in sorted(folder.glob("*.jsonl")):
        before, _, after = wordings[file.stem].partition("{input}")
        for row in _rows(file):
            for question in questions(row["qa_pairs"]):
                yield before + row["input"], after.replace("{Q}", question)


def _programming(folder: Path) -> Iterator[str]:
    for file in sorted((*folder.glob("exercism/*.md"), *folder.glob("apps/*_question.txt"))):
        yield file.read_text("utf-8")
    for row in (
        *_rows(folder / "mbpp" / "mbpp_release_v1.jsonl"),
        *_rows(folder / "humaneval" / "HumanEval.jsonl.gz"),
    ):
        yield row["prompt"]


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with (
        gzip.open(file, "rt", encoding="utf-8")
        if file.suffix == ".gz"
        else file.open(encoding="utf-8") as lines
    ):
        for line in lines:
            yield json.loads(line)
