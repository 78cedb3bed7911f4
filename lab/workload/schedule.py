"""Who asks what, where and when: sessions of users in every region, over texts that all regions share."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lab.workload.corpus import Agent, Corpus, Document
from lab.workload.request import Kind, Request, Workload

T = TypeVar("T")
Prompt = tuple[tuple[Mapping[str, str], ...], tuple[Mapping[str, Any], ...]]
"""Messages and tools."""

_READER = "You answer questions about the text that follows. Quote the sentence that your answer rests on."


@dataclass(frozen=True, slots=True)
class Shape:
    """What the sequence looks like."""

    requests: int = 120
    duration_ms: float = 30_000.0
    seed: int = 1
    region_weights: Mapping[str, float] = field(default_factory=lambda: {"us": 0.4, "eu": 0.3, "asia": 0.3})
    kind_weights: Mapping[Kind, float] = field(
        default_factory=lambda: {"document": 0.40, "agent": 0.35, "programming": 0.25}
    )
    documents: int = 20
    """Documents in use, out of the corpus."""
    agents: int = 8
    """Agents in use, out of the corpus."""
    popularity: float = 0.4
    """Exponent of Zipf's law over documents and over agents; 0 makes all equally popular."""
    session_requests: float = 2.0
    """Mean requests of a user about one document, with one agent or of one series of problems."""
    think_ms: float = 4_000.0
    """Mean pause between two requests of a session."""
    output_tokens: tuple[int, int] = (16, 64)
    """Shortest and longest answer asked for."""


def build_workload(corpus: Corpus, shape: Shape) -> Workload:
    """The timed sequence: sessions start uniformly over the duration, every region draws from the same texts.

    A session ends with the duration; sessions are added until the count is exact.
    """
    rng = random.Random(shape.seed)
    authors = _Authors(rng, corpus, shape)
    requests: list[Request] = []
    sessions = 0
    while len(requests) < shape.requests:
        sessions += 1
        requests.extend(authors.session(sessions))
    requests = sorted(requests[: shape.requests], key=lambda request: request.at_ms)
    return Workload(
        source=corpus.source,
        seed=shape.seed,
        duration_ms=shape.duration_ms,
        requests=tuple(
            dataclasses.replace(request, id=f"r{number:04d}") for number, request in enumerate(requests)
        ),
    )


class _Authors:
    """Writes sessions, one after the other, from one stream of random numbers."""

    def __init__(self, rng: random.Random, corpus: Corpus, shape: Shape) -> None:
        self._rng = rng
        self._shape = shape
        self._corpus = corpus
        self._documents = rng.sample(corpus.documents, min(shape.documents, len(corpus.documents)))
        self._agents = rng.sample(corpus.agents, min(shape.agents, len(corpus.agents)))
        self._write: Mapping[Kind, Callable[[], tuple[str, Callable[[], Prompt]]]] = {
            "document": self._reader,
            "agent": self._operator,
            "programming": self._programmer,
        }

    def session(self, number: int) -> Iterator[Request]:
        """The requests of one user, in order of time."""
        kind = _weighted(self._rng, self._shape.kind_weights)
        region = _weighted(self._rng, self._shape.region_weights)
        family, prompt = self._write[kind]()
        for at_ms in self._times():
            messages, tools = prompt()
            tokens = self._rng.randint(*self._shape.output_tokens)
            yield Request(
                id="",
                at_ms=at_ms,
                region=region,
                user=f"{region}-{number}",
                kind=kind,
                family=family,
                messages=messages,
                tools=tools,
                max_tokens=tokens,
            )

    def _times(self) -> Iterator[float]:
        at_ms = self._rng.uniform(0.0, self._shape.duration_ms)
        while at_ms < self._shape.duration_ms:
            yield at_ms
            if self._rng.random() < 1.0 / self._shape.session_requests:
                return
            at_ms += self._rng.expovariate(1.0 / self._shape.think_ms)

    def _reader(self) -> tuple[str, Callable[[], Prompt]]:
        document: Document = self._popular(self._documents)

        def prompt() -> Prompt:
            question = self._rng.choice(document.questions)
            return (_system(_READER), _user(f"{document.text}\n\nQuestion: {question}")), ()

        return document.title, prompt

    def _operator(self) -> tuple[str, Callable[[], Prompt]]:
        agent: Agent = self._popular(self._agents)

        def prompt() -> Prompt:
            return (_system(agent.system), _user(self._rng.choice(agent.tasks))), agent.tools

        return agent.name, prompt

    def _programmer(self) -> tuple[str, Callable[[], Prompt]]:
        def prompt() -> Prompt:
            return (_system(self._corpus.instructions), _user(self._rng.choice(self._corpus.problems))), ()

        return "instructions", prompt

    def _popular(self, items: Sequence[T]) -> T:
        weights = [1.0 / rank**self._shape.popularity for rank in range(1, len(items) + 1)]
        return self._rng.choices(items, weights)[0]


def _system(text: str) -> Mapping[str, str]:
    return {"role": "system", "content": text}


def _user(text: str) -> Mapping[str, str]:
    return {"role": "user", "content": text}


def _weighted(rng: random.Random, weights: Mapping[T, float]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]
