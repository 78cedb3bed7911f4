"""Mixed from its texts: ToolBench's tasks, LooGLE's documents, and programming problems, in real tokens.

Of APPS only five problems are at hand: MBPP, HumanEval and Exercism stand in for the rest. Answers and tools'
results are made up, at the lengths that the published examples have.
"""

import ast
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from simulator.errors import SimulationError
from simulator.workloads import mixed
from simulator.workloads.mixed import Dataset, Prompt
from simulator.workloads.text_tokens import Encode, encode_with
from simulator.workloads.tokens import Tokens

_TOOLS_FOLLOW: Final = "You have access of the following tools:\n"
"""Last line of ToolBench's instructions."""
_PROBLEM: Final = "Write a Python program that solves the problem below. Answer with the program only.\n\n"
_TOKENIZER: Final = Path("tokenizer", "smollm2_tokenizer.json")
_FOLDERS: Final = ("toolbench", "loogle", "exercism", "apps", "mbpp", "humaneval")
_TITLE: Final = 40
"""Characters of a family's name."""


def text_datasets(folder: Path) -> tuple[Dataset, ...]:
    """Return the three datasets of Mixed from the texts under a data folder. Takes some seconds.

    Args:
        folder: With `tokenizer/smollm2_tokenizer.json` and `text/`, as KVCOMPASS_DATA names it.

    Raises:
        SimulationError: A file of it is missing or not what it should be.
    """
    text = folder / "text"
    try:
        encode = encode_with(folder / _TOKENIZER)
        return (
            Dataset(
                "tools",
                0.50,
                _prompts(encode, _tools(text / "toolbench")),
                mixed.TOOL_CALLS,
                mixed.TOOL_GROWTH,
                mixed.TOOL_TURNS,
            ),
            Dataset("document", 0.05, _prompts(encode, _documents(text / "loogle")), mixed.DOCUMENT_ANSWERS),
            Dataset("programming", 0.45, _prompts(encode, _problems(text)), mixed.PROGRAMMING_ANSWERS),
        )
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SimulationError(
            f"{folder}: the texts of Mixed cannot be read: {error!r}", field="KVCOMPASS_DATA"
        ) from error


def text_files(folder: Path) -> list[Path]:
    """List the files under a data folder that `text_datasets` reads, and what lies beside them, in order."""
    texts = [path for name in _FOLDERS for path in (folder / "text" / name).rglob("*") if path.is_file()]
    return sorted([folder / _TOKENIZER, *texts])


def _prompts(encode: Encode, texts: Iterator[tuple[str, str, str]]) -> Sequence[Prompt]:
    """Tokenize (start, rest, family) of each prompt; a start that many share is tokenized and kept once."""
    starts: dict[str, Tokens] = {}
    prompts = []
    for start, rest, family in texts:
        if start not in starts:
            starts[start] = encode(start)
        prompts.append(Prompt(starts[start], encode(rest), family))
    return prompts


def _tools(folder: Path) -> Iterator[tuple[str, str, str]]:
    instructions = _instructions(folder)
    numbers: dict[str, int] = {}
    for file in _found(folder, "stabletoolbench_*.json"):
        for row in json.loads(file.read_text("utf-8")):
            tools = [{k: v for k, v in api.items() if k != "template_response"} for api in row["api_list"]]
            start = f"{instructions}{json.dumps(tools)}\n"
            number = numbers.setdefault(start, len(numbers))
            yield start, f"{row['query']}\nBegin!\n", f"tools {number}"


def _instructions(folder: Path) -> str:
    for file in _found(folder, "data_example_answer_*.json"):
        messages = json.loads(file.read_text("utf-8"))["answer_generation"]["train_messages"]
        if messages:
            said, _, _ = str(messages[0][0]["content"]).partition(_TOOLS_FOLLOW)
            return said + _TOOLS_FOLLOW
    raise KeyError("train_messages")


def _documents(folder: Path) -> Iterator[tuple[str, str, str]]:
    wordings = json.loads((folder / "task2prompt.json").read_text("utf-8"))
    for file in _found(folder, "*.jsonl"):
        before, _, after = wordings[file.stem].partition("{input}")
        for row in _rows(file):
            for question in questions(row["qa_pairs"]):
                yield before + row["input"], after.replace("{Q}", question), str(row["title"])[:_TITLE]


def questions(pairs: Any) -> list[str]:
    """What LooGLE asks about a document: its `qa_pairs`, a list, the text of one or "none"."""
    if pairs == "none":
        return [""]
    return [str(pair["Q"]) for pair in (ast.literal_eval(pairs) if isinstance(pairs, str) else pairs)]


def _problems(folder: Path) -> Iterator[tuple[str, str, str]]:
    for file in (*_found(folder / "exercism", "*.md"), *_found(folder / "apps", "*_question.txt")):
        yield _PROBLEM, file.read_text("utf-8"), f"{file.parent.name} {file.stem}"
    for path in (Path("mbpp", "mbpp_release_v1.jsonl"), Path("humaneval", "HumanEval.jsonl.gz")):
        for row in _rows(folder / path):
            yield _PROBLEM, row["prompt"], row["task_id"]


def _found(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"no {pattern} in {folder}")
    return files


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    data = file.read_bytes()
    text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    return (json.loads(line) for line in text.splitlines())
