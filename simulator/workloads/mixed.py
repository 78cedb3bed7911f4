"""Mixed (paper 5.1): tool calls 50 %, questions about long documents 5 %, programming problems 45 %.

A conversation starts with one of its dataset's prompts, each as likely as the others, so prompts repeat, as
they must where thousands of requests a second draw on a few thousand published instructions; and prompts that
do not repeat share tool lists and documents. A tool task goes on for a few turns, with the call and the
tool's result added each time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.request import Request
from simulator.streams import random_stream
from simulator.workloads.draw import Draw
from simulator.workloads.growing import Growth, going_on
from simulator.workloads.lengths import Lengths
from simulator.workloads.tenants import Tenants
from simulator.workloads.tokens import Tokens, TokenSource
from simulator.workloads.workload import Turn


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a dataset."""

    start: Tokens
    """What others share: instructions, a tool list, a document."""
    rest: Tokens
    family: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """Prompts of one kind."""

    category: str
    share: float
    """Of the requests, later turns included."""
    prompts: Sequence[Prompt]
    answers: Lengths
    growth: Growth | None = None
    """How a conversation goes on; None: it is over after one turn."""
    turns: Sequence[int] = (1,)
    """Of a conversation, each number as likely as the others."""


TOOL_TURNS = (3, 4, 5)
"""Model calls of a solved ToolBench task: 3 to 5 in its 13 published examples, 4.0 on average."""
TOOL_CALLS = Lengths(76, 0.95, most=1_024)
"""Tokens of a call with its thought, or of the final answer: median 76, mean 136 there."""
TOOL_GROWTH = Growth(messages=Lengths(72, 1.23, most=1_024), answers=TOOL_CALLS, pause_s=1.0)
"""Tools' results: median 72, mean 164 tokens there. A second for a tool's own time is ours."""
DOCUMENT_ANSWERS = Lengths(20, 0.9, most=512)
"""LooGLE's reference answers: median 20, mean 25."""
PROGRAMMING_ANSWERS = Lengths(150, 0.7, most=2_048)
"""Reference solutions of MBPP and HumanEval have a median of 40 to 48 tokens; a model also explains
(ours)."""


class Mixed:
    """Draws a dataset by its share, then one of its prompts. A `Workload`."""

    def __init__(
        self,
        origin: str,
        datasets: Sequence[Dataset],
        *,
        tenants: Tenants,
        origins: Draw,
        tokens: TokenSource,
        seed: int,
    ) -> None:
        self.label = f"mixed ({origin})"
        self.settle_s = 15.0
        self._datasets = datasets
        openings = [one.share * len(one.turns) / sum(one.turns) for one in datasets]
        self._kinds = Draw(openings, random_stream(seed, "workload.kind"))
        self._stream = random_stream(seed, "workload.prompts")
        self._tenants = tenants
        self._origins = origins
        self._tokens = tokens

    def opening(self, id_: int, arrives_us: int) -> Turn:
        """See `Workload`; there are always more."""
        dataset = self._datasets[self._kinds.next()]
        prompt = dataset.prompts[int(self._stream.random() * len(dataset.prompts))]
        tenant, system = self._tenants.next()
        request = Request(
            id_,
            arrives_us,
            self._origins.next(),
            np.concatenate((system, prompt.start, prompt.rest)),
            self._tokens.answer(dataset.answers.draw(self._stream)),
            tenant,
            dataset.category,
            prompt.family,
        )
        if dataset.growth is None:
            return Turn(request)
        turns = dataset.turns[int(self._stream.random() * len(dataset.turns))]
        return Turn(request, going_on(dataset.growth, request, turns - 1, self._tokens, self._stream))
