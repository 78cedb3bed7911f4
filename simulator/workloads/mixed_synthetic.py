"""Mixed without its texts: datasets of the sizes and lengths that the published ones have.

All lengths were measured on the files named, in tokens of a 49K byte-level BPE.
"""

from typing import Final

import numpy as np

from simulator.streams import random_stream
from simulator.workloads import mixed
from simulator.workloads.lengths import Lengths
from simulator.workloads.mixed import Dataset, Prompt
from simulator.workloads.tokens import TokenSource

_TOOL_TASKS: Final = 765
_TOOL_LISTS: Final = 580
"""StableToolBench's solvable tasks, and the different lists of tools that they come with."""
_TOOL_LIST: Final = Lengths(620, 0.89, least=64, most=5_000)
"""Median 628, mean 902, log spread 0.89."""
_TOOL_TASK: Final = Lengths(54, 0.3, least=20, most=160)
_TOOL_INSTRUCTIONS: Final = 370
"""ToolBench's system prompt before the list."""
_DOCUMENTS: Final = 19
_DOCUMENT: Final = Lengths(23_100, 0.35, least=11_800, most=41_700)
"""LooGLE's published samples."""
_QUESTIONS: Final = 12
"""A document, on average."""
_QUESTION: Final = Lengths(32, 1.0, least=6, most=460)
_PROBLEMS: Final = 1_233
_PROBLEM: Final = Lengths(131, 0.58, least=24, most=2_048)
"""MBPP, HumanEval and Exercism, which stand in for APPS, of which five are at hand: median 131."""
_PROBLEM_INSTRUCTIONS: Final = 16


def synthetic_datasets(tokens: TokenSource, seed: int) -> tuple[Dataset, ...]:
    """Return the three datasets of Mixed, made up."""
    return (_tools(tokens, seed), _documents(tokens, seed), _programming(tokens, seed))


def _tools(tokens: TokenSource, seed: int) -> Dataset:
    stream = random_stream(seed, "workload.tools")
    instructions = tokens.shared(_TOOL_INSTRUCTIONS)
    lists = [
        np.concatenate((instructions, tokens.shared(_TOOL_LIST.draw(stream)))) for _ in range(_TOOL_LISTS)
    ]
    more = (int(stream.random() * _TOOL_LISTS) for _ in range(_TOOL_TASKS - _TOOL_LISTS))
    prompts = [
        Prompt(lists[i], tokens.shared(_TOOL_TASK.draw(stream)), f"tools {i}")
        for i in (*range(_TOOL_LISTS), *more)
    ]
    return Dataset("tools", 0.50, prompts, mixed.TOOL_CALLS, mixed.TOOL_GROWTH, mixed.TOOL_TURNS)


def _documents(tokens: TokenSource, seed: int) -> Dataset:
    stream = random_stream(seed, "workload.documents")
    documents = [tokens.shared(_DOCUMENT.draw(stream)) for _ in range(_DOCUMENTS)]
    prompts = [
        Prompt(document, tokens.shared(_QUESTION.draw(stream)), f"document {i}")
        for i, document in enumerate(documents)
        for _ in range(_QUESTIONS)
    ]
    return Dataset("document", 0.05, prompts, mixed.DOCUMENT_ANSWERS)


def _programming(tokens: TokenSource, seed: int) -> Dataset:
    stream = random_stream(seed, "workload.programming")
    instructions = tokens.shared(_PROBLEM_INSTRUCTIONS)
    prompts = [
        Prompt(instructions, tokens.shared(_PROBLEM.draw(stream)), f"problem {i}") for i in range(_PROBLEMS)
    ]
    return Dataset("programming", 0.45, prompts, mixed.PROGRAMMING_ANSWERS)
