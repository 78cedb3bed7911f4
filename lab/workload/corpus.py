"""The texts that a workload draws from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcompass.errors import KVCompassError


class CorpusError(KVCompassError):
    """A text is missing or malformed; the message names the file."""


@dataclass(frozen=True, slots=True)
class Document:
    """A long text and questions about it."""

    title: str
    text: str
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Agent:
    """A system prompt with a tool list, and tasks for it."""

    name: str
    system: str
    tools: tuple[Mapping[str, Any], ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents, agents and programming problems; every tuple holds at least one."""

    source: str
    documents: tuple[Document, ...]
    agents: tuple[Agent, ...]
    instructions: str
    """Preamble that all programming problems share."""
    problems: tuple[str, ...]
