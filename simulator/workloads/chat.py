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
    answers: Lengths
    shared_starts: float
    """Share of the conversations that begin with a text others use too."""
    texts: int
    """Such texts; the k-th most popular is drawn with weight 1/k."""
    text: Lengths
    after_text: Lengths
    """What a user writes after such a text."""
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
        self._growth = Growth(rules.messages, rules.answers, rules.pause_s)
        self._stream = random_stream(seed, "workload.chat")
        self._tenants = tenants
        self._origins = origins
        self._tokens = tokens
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
            prompt = np.concatenate((system, self._texts[text], rest))
        else:
            prompt = np.concatenate((system, self._tokens.fresh(rules.messages.draw(self._stream))))
        answer = self._tokens.answer(rules.answers.draw(self._stream))
        request = Request(id_, arrives_us, self._origins.next(), prompt, answer, tenant, "chat", family)
        turns = 1
        while random() >= 1 / rules.turns:
            turns += 1
        return Turn(request, going_on(self._growth, request, turns - 1, self._tokens, self._stream))


def wildchat() -> ChatRules:
    """WildChat (Zhao et al., ICLR 2024): 2.5 turns a conversation, messages of 296 (sd 1,609) tokens, answers
    of 441 (sd 411).

    That many conversations begin with the same long prompt generators is known and not published as a figure;
    the share, number and length of such texts are ours, within the published mean of all messages.
    """
    return ChatRules(
        name="wildchat",
        turns=2.5,
        messages=Lengths.by_mean(275, 1_609),
        answers=Lengths.by_mean(441, 411, most=4_096),
        shared_starts=0.12,
        texts=2_000,
        text=Lengths(500, 0.7, least=64, most=4_096),
        after_text=Lengths(30, 0.8, most=512),
    )


def lmsys() -> ChatRules:
    """LMSYS-Chat-1M (Zheng et al., ICLR 2024): 2.0 turns, messages of 70 (sd 143) tokens, answers of 215.

    The deviation of its answers is taken as its mean; shared texts, which its demo page offered as examples,
    are fewer and shorter than WildChat's (ours).
    """
    return ChatRules(
        name="lmsys",
        turns=2.0,
        messages=Lengths.by_mean(66, 143),
        answers=Lengths.by_mean(215, 215, most=4_096),
        shared_starts=0.10,
        texts=500,
        text=Lengths(80, 0.9, least=12, most=2_048),
        after_text=Lengths(12, 0.6, most=128),
    )
