"""Mixed (paper 5.1): tool calls 50 %, long documents 5 %, programming problems 45 %, in single turns.

A request takes one of its dataset's prompts at random: prompts repeat, as they must where thousands of
requests a second draw on a few thousand published instructions, and before they repeat they share tool lists
and documents."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.request import Request
from simulator.streams import random_stream
from simulator.workloads.lengths import Lengths
from simulator.workloads.origins import Origins
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
    """Of the requests."""
    prompts: Sequence[Prompt]
    answers: Lengths


class Mixed:
    """Draws a dataset by its share, then one of its prompts, each as likely as the others. A `Workload`."""

    def __init__(
        self,
        origin: str,
        datasets: Sequence[Dataset],
        *,
        tenants: Tenants,
        origins: Origins,
        tokens: TokenSource,
        seed: int,
    ) -> None:
        self.label = f"mixed ({origin})"
        self._datasets = datasets
        self._kinds = Origins([dataset.share for dataset in datasets], random_stream(seed, "workload.kind"))
        self._stream = random_stream(seed, "workload.prompts")
        self._tenants = tenants
        self._origins = origins
        self._tokens = tokens

    def opening(self, id_: int, arrives_us: int) -> Turn:
        """See `Workload`; there are always more."""
        dataset = self._datasets[self._kinds.draw()]
        prompt = dataset.prompts[int(self._stream.random() * len(dataset.prompts))]
        tenant, system = self._tenants.draw()
        return Turn(
            Request(
                id_,
                arrives_us,
                self._origins.draw(),
                np.concatenate((system, prompt.start, prompt.rest)),
                self._tokens.answer(dataset.answers.draw(self._stream)),
                tenant,
                dataset.category,
                prompt.family,
            )
        )
