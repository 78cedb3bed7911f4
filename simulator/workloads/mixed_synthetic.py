"""Mixed without its texts: datasets of the sizes and lengths that the published ones have."""

from typing import Final

import numpy as np

from simulator.streams import random_stream
from simulator.workloads.lengths import Lengths
from simulator.workloads.mixed import Dataset, Prompt
from simulator.workloads.tokens import TokenSource

_TOOL_LISTS: Final = Lengths(600, 0.89, least=64, most=5_000)
"""580 tool lists of StableToolBench's 765 instructions: median 628, mean 902, log spread 0.89 (49K BPE)."""
_TOOL_QUERIES: Final = Lengths(54, 0.3, least=20, most=160)
_TOOL_INSTRUCTIONS: Final = 45
_DOCUMENTS: Final = Lengths(24_000, 0.3, least=14_000, most=40_000)
"""LooGLE's long documents."""
_PROBLEMS: Final = Lengths(131, 0.58, least=24, most=2_048)
"""1,233 problems of MBPP, HumanEval, Exercism and APPS: median 131, log spread 0.58."""
_PROBLEM_INSTRUCTIONS: Final = 16
_QUESTIONS: Final = 11
"""A document has so many on average."""


def synthetic_datasets(tokens: TokenSource, seed: int) -> tuple[Dataset, ...]:
    """Return the three datasets of Mixed, made up."""
    return (_tools(tokens, seed), _documents(tokens, seed), _programming(tokens, seed))


def _tools(tokens: TokenSource, seed: int) -> Dataset:
    stream = random_stream(seed, "workload.tools")
    instructions = tokens.shared(_TOOL_INSTRUCTIONS)
    lists = [np.concatenate((instructions, tokens.shared(_TOOL_LISTS.draw(stream)))) for _ in range(580)]
    owners = [*range(580), *(int(stream.random() * 580) for _ in range(765 - 580))]
    prompts = [Prompt(lists[i], tokens.shared(_TOOL_QUERIES.draw(stream)), f"tools {i}") for i in owners]
    return Dataset("tools", 0.50, prompts, Lengths(80, 0.6, most=1_024))


def _documents(tokens: TokenSource, seed: int) -> Dataset:
    stream = random_stream(seed, "workload.documents")
    documents = [tokens.shared(_DOCUMENTS.draw(stream)) for _ in range(20)]
    prompts = [
        Prompt(document, tokens.shared(48), f"document {i}")
        for i, document in enumerate(documents)
        for _ in range(_QUESTIONS)
    ]
    return Dataset("document", 0.05, prompts, Lengths(40, 0.8, most=1_024))


def _programming(tokens: TokenSource, seed: int) -> Dataset:
    stream = random_stream(seed, "workload.programming")
    instructions = tokens.shared(_PROBLEM_INSTRUCTIONS)
    prompts = [
        Prompt(instructions, tokens.shared(_PROBLEMS.draw(stream)), f"problem {i}") for i in range(1_233)
    ]
    return Dataset("programming", 0.45, prompts, Lengths(180, 0.7, most=2_048))
