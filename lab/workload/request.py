"""A request of a workload, and the whole timed sequence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["document", "agent", "programming"]


@dataclass(frozen=True, slots=True)
class Request:
    """One chat completion, sent by a user to the edge of the user's own region."""

    id: str
    at_ms: float
    """Model ms since the start of the replay."""
    region: str
    user: str
    kind: Kind
    family: str
    """What the prompt begins with: the document, the agent, the instructions. For reports only."""
    messages: tuple[Mapping[str, str], ...]
    tools: tuple[Mapping[str, Any], ...]
    """Function tools in OpenAI's form; empty for none."""
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A sequence of requests, ordered by time. The same seed and corpus give the same sequence."""

    source: str
    """Where the texts come from; `synthetic` says that nobody wrote them."""
    seed: int
    duration_ms: float
    requests: tuple[Request, ...]
