"""Chat in several turns, fitted to what is published of a data set (synthetic: nobody's messages are in
it)."""

from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np

from simulator.request import Request
from simulator.streams import random_stream
from simulator.workloads.growing import Growth, going_on
from simulator.workloads.lengths import Lengths
from simulator.workloads.tenants import Tenants
from simulator.workloads.tokens import TokenSource
from simulator.workloads.workload import Turn


@dataclass(frozen=True, slots=True)
class ChatRules:
    """What a data set's conversations are like."""

    name: str
    turns: float
    """Mean of a geometric number of turns."""
    messages: Lengths
    """Of a user, without a shared text."""
    answers: Lengths
    shared_starts: float
    """Share of the conversations that begin with a text others use too."""
    texts: int
    """Such texts; the k-th most popular is drawn with weight 1/k."""
    text: Lengths
    after_text: Lengths
    """What a user writes after such a text."""
    first: Lengths | None = None
    """Of a conversation's first message; None: as all others."""
    preamble: int = 0
    """Tokens that begin every prompt."""
    most: int = 100_000
    """Of a prompt; a conversation that would exceed them ends."""
    pause_s: float = 5.0
    """Mean pause before a user's next message. Real pauses are longer; in a run of a minute a conversation
    must come back, or no turn but the first would ever be seen."""


class Places(Protocol):
    """Where conversations start."""

    def next(self) -> int:
        """Draw the index of a region."""


class Chat:
    """Conversations by such rules. A `Workload`."""

    def __init__(
        self, rules: ChatRules, *, tenants: Tenants, origins: Places, tokens: TokenSource, seed: int
    ) -> None:
        self.label = f"{rules.name} (synthetic)"
        self.settle_s = 12 * rules.pause_s
        self._rules = rules
        self._growth = Growth(rules.messages, rules.answers, rules.pause_s, rules.most)
        self._first = rules.first or rules.messages
        self._stream = random_stream(seed, "workload.chat")
        self._tenants = tenants
        self._origins = origins
        self._tokens = tokens
        self._preamble = tokens.shared(rules.preamble)
        self._texts = [tokens.shared(rules.text.draw(self._stream)) for _ in range(rules.texts)]
        self._popularity = list(accumulate(1 / (k + 1) for k in range(rules.texts)))

    def opening(self, id_: int, arrives_us: int) -> Turn:
        """See `Workload`; there are always more."""
        rules, random = self._rules, self._stream.random
        tenant, system = self._tenants.next()
        family = ""
        if random() < rules.shared_starts:
            text = bisect(self._popularity, random() * self._popularity[-1])
            family = f"text {text}"
            rest = self._tokens.fresh(rules.after_text.draw(self._stream))
            prompt = np.concatenate((self._preamble, system, self._texts[text], rest))
        else:
            asked = self._tokens.fresh(self._first.draw(self._stream))
            prompt = np.concatenate((self._preamble, system, asked))
        answer = self._tokens.answer(rules.answers.draw(self._stream))
        request = Request(id_, arrives_us, self._origins.next(), prompt, answer, tenant, "chat", family)
        turns = 1
        while random() >= 1 / rules.turns:
            turns += 1
        return Turn(request, going_on(self._growth, request, turns - 1, self._tokens, self._stream))
