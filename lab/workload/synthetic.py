"""Packaged texts that nobody wrote: reports, tool lists and problems from a small grammar.

They have the sizes and the sharing of real ones and no meaning; whatever is reported over them is
labelled `synthetic`.
"""

import json
import random
from collections.abc import Mapping
from typing import Any

from lab.workload.corpus import Agent, Corpus, Document

DOCUMENT_CHARACTERS = 40_000
TOOL_CHARACTERS = 21_000
_DOCUMENTS = 40
_AGENTS = 12
_PROBLEMS = 200

_FIELDS = (
    "river navigation", "grain storage", "coastal lighthouses", "alpine railways", "paper making",
    "bridge maintenance", "urban beekeeping", "tidal energy", "ceramic glazes", "night markets",
    "seed libraries", "harbour dredging", "wool trade", "glass recycling", "public archives",
    "school gardens", "mountain weather", "ferry timetables", "water mills", "street lighting",
)  # fmt: skip
_SUBJECTS = (
    "the committee", "the survey of 1987", "a later audit", "the northern district",
    "the second working group", "an independent laboratory", "the council",
    "the regional authority", "every operator", "the archive",
    "the engineering office", "a citizens' panel",
)  # fmt: skip
_VERBS = (
    "recorded", "questioned", "confirmed", "postponed", "measured", "compared", "described", "funded",
    "rejected", "extended", "reviewed", "summarised",
)  # fmt: skip
_OBJECTS = (
    "the cost of seasonal repairs", "the number of licensed sites", "a proposal for shared storage",
    "the first series of field trials", "the agreement on minimum distances", "a method of sampling by hand",
    "the figures of the preceding decade", "the training of volunteers",
    "the order in which districts are served",
    "a register of accidents", "the plan for a common timetable", "the quality of imported material",
)  # fmt: skip
_TAILS = (
    "although the sample was small", "before the new rules came into force", "in spite of a dry spring",
    "with the help of neighbouring towns", "as had been asked in the previous report",
    "and published the result within a month", "without changing the budget", "after a long discussion",
    "because older sources disagree", "which later work has not contradicted",
)  # fmt: skip
_NOUNS = (
    "invoice",
    "ticket",
    "shipment",
    "booking",
    "sensor",
    "account",
    "route",
    "document",
    "meter",
    "order",
)
_ACTIONS = ("list", "get", "create", "update", "cancel", "search", "archive", "export", "assign", "verify")
_TYPES = ("string", "integer", "boolean", "number")


def synthetic_corpus(seed: int) -> Corpus:
    """The same seed gives the same texts."""
    rng = random.Random(seed)
    return Corpus(
        source="synthetic",
        documents=tuple(_document(rng, number) for number in range(_DOCUMENTS)),
        agents=tuple(_agent(rng, number) for number in range(_AGENTS)),
        instructions=_instructions(rng),
        problems=tuple(_problem(rng, number) for number in range(_PROBLEMS)),
    )


def _sentence(rng: random.Random) -> str:
    subject = rng.choice(_SUBJECTS)
    text = f"{subject} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)} {rng.choice(_TAILS)}"
    if rng.random() < 0.3:
        text += f" ({rng.randint(2, 980)} cases in {rng.randint(1950, 2024)})"
    return text[0].upper() + text[1:] + "."


def _paragraph(rng: random.Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(4, 9)))


def _document(rng: random.Random, number: int) -> Document:
    field = _FIELDS[number % len(_FIELDS)]
    title = f"Report {number + 1} on {field}"
    size = int(DOCUMENT_CHARACTERS * rng.uniform(0.8, 1.2))
    paragraphs: list[str] = []
    length = 0
    while length < size:
        paragraphs.append(_paragraph(rng))
        length += len(paragraphs[-1]) + 2
    questions = tuple(
        f"According to the report, who {rng.choice(_VERBS)} {rng.choice(_OBJECTS)}, and when?"
        for _ in range(24)
    )
    return Document(title, f"{title}\n\n" + "\n\n".join(paragraphs), questions)


def _agent(rng: random.Random, number: int) -> Agent:
    field = _FIELDS[-1 - number]
    system = f"You are an assistant for {field}. Use the tools; never invent an identifier.\n\n" + "\n".join(
        f"{rule}. {_sentence(rng)}" for rule in range(1, 21)
    )
    tools: list[Mapping[str, Any]] = []
    size = 0
    while size < TOOL_CHARACTERS:
        tools.append(_tool(rng, len(tools)))
        size += len(json.dumps(tools[-1]))
    tasks = tuple(
        f"Please {rng.choice(_ACTIONS)} the {rng.choice(_NOUNS)} {rng.randint(1_000, 9_999)} and then "
        f"{rng.choice(_ACTIONS)} every {rng.choice(_NOUNS)} that belongs to it."
        for _ in range(60)
    )
    return Agent(field, system, tuple(tools), tasks)


def _tool(rng: random.Random, number: int) -> Mapping[str, Any]:
    action, noun = rng.choice(_ACTIONS), rng.choice(_NOUNS)
    names = rng.sample(_NOUNS, rng.randint(2, 5))
    properties = {f"{name}_id": {"type": rng.choice(_TYPES), "description": _sentence(rng)} for name in names}
    return {
        "type": "function",
        "function": {
            "name": f"{action}_{noun}_{number}",
            "description": _sentence(rng),
            "parameters": {"type": "object", "properties": properties, "required": [f"{names[0]}_id"]},
        },
    }


def _instructions(rng: random.Random) -> str:
    head = "You solve programming problems. Answer with one Python function and nothing else."
    return head + "\n\n" + "\n".join(f"{rule}. {_sentence(rng)}" for rule in range(1, 61))


def _problem(rng: random.Random, number: int) -> str:
    noun, other = rng.sample(_NOUNS, 2)
    examples = "\n".join(
        f"    >>> {noun}_{number}({[rng.randint(0, 99) for _ in range(rng.randint(3, 8))]})" for _ in range(3)
    )
    return (
        f"def {noun}_{number}(values):\n"
        f'    """Given one integer for each {noun}, return those that no {other} exceeds by more than '
        f'{rng.randint(2, 50)}, in their first order.\n\n{examples}\n    """\n'
    )
