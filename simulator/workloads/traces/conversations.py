"""Conversations of texts: what WildChat's, LMSYS's and ShareGPT's exports have in common."""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.request import Request
from simulator.workloads.text_tokens import Encode
from simulator.workloads.traces.regions import Regions
from simulator.workloads.traces.trace import Entry
from simulator.workloads.workload import Turn


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is said before an answer, and the answer."""

    asked: str
    answered: str


@dataclass(frozen=True, slots=True)
class Told:
    """What all conversations of a file are made with."""

    encode: Encode
    regions: Regions
    """Where conversations start of which nothing is told."""
    stream: random.Random
    """For pauses, of which exports do not tell."""
    pause_s: float
    """Mean of an exponential pause before a user's next message."""

    def entry(self, at_us: int | None, exchanges: list[Exchange], region: int | None) -> Entry:
        """Return the entry of a conversation, which is tokenized turn by turn."""

        def begin(id_: int, arrives_us: int) -> Turn:
            home = self.regions.next() if region is None else region
            nothing = np.zeros(0, np.int32)
            before = Request(id_, arrives_us, home, nothing, nothing, category="chat")
            return _Told(self, deque(exchanges), before).turn(id_, arrives_us)

        return Entry(at_us, len(exchanges), begin)


class _Told:
    """The rest of a conversation. A `Conversation`."""

    __slots__ = ("_exchanges", "_last", "_told", "pause_us")

    def __init__(self, told: Told, exchanges: deque[Exchange], last: Request) -> None:
        self._told = told
        self._exchanges = exchanges
        self._last = last
        self.pause_us = int(1e6 * told.stream.expovariate(1 / told.pause_s))

    def turn(self, id_: int, arrives_us: int) -> Turn:
        """See `Conversation`."""
        last, encode = self._last, self._told.encode
        exchange = self._exchanges.popleft()
        request = Request(
            id_,
            arrives_us,
            last.region,
            np.concatenate((last.prompt, last.answer, encode(exchange.asked))),
            encode(exchange.answered),
            last.tenant,
            last.category,
            last.family,
        )
        return Turn(request, _Told(self._told, self._exchanges, request) if self._exchanges else None)


def exchanges(messages: Iterable[tuple[str, str]]) -> list[Exchange]:
    """Pair (role, text) messages up: all that is said before an answer is asked, `assistant` answers.

    Messages without text, and what comes after the last answer, are left out.
    """
    asked: list[str] = []
    found: list[Exchange] = []
    for role, text in messages:
        if not text.strip():
            continue
        if role != "assistant":
            asked.append(text)
        elif asked:
            found.append(Exchange("\n".join(asked), text))
            asked = []
        elif found:
            found[-1] = Exchange(found[-1].asked, f"{found[-1].answered}\n{text}")
        else:
            asked.append(text)
    return found
