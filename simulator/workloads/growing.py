"""Conversations that grow: each prompt is the one before, its answer, and something new."""

import random
from dataclasses import dataclass

import numpy as np

from simulator.request import Request
from simulator.workloads.lengths import Lengths
from simulator.workloads.tokens import TokenSource
from simulator.workloads.workload import Turn


@dataclass(frozen=True, slots=True)
class Growth:
    """How the conversations of one kind go on."""

    messages: Lengths
    """What is added before each later turn: a user's message, or a tool's result."""
    answers: Lengths
    pause_s: float
    """Mean of the exponential time from an answer's end to the next turn."""
    most: int = 100_000
    """Tokens of a prompt: a conversation that would exceed them ends instead."""


class GrowingConversation:
    """A conversation after one of its turns. A `Conversation`."""

    __slots__ = ("_growth", "_last", "_left", "_stream", "_tokens", "pause_us")

    def __init__(
        self, growth: Growth, last: Request, left: int, tokens: TokenSource, stream: random.Random
    ) -> None:
        self._growth = growth
        self._last = last
        self._left = left
        self._tokens = tokens
        self._stream = stream
        self.pause_us = int(1e6 * stream.expovariate(1 / growth.pause_s))

    def turn(self, id_: int, arrives_us: int) -> Turn:
        """See `Conversation`."""
        last, growth = self._last, self._growth
        request = Request(
            id_,
            arrives_us,
            last.region,
            np.concatenate(
                (last.prompt, last.answer, self._tokens.fresh(growth.messages.draw(self._stream)))
            ),
            self._tokens.answer(growth.answers.draw(self._stream)),
            last.tenant,
            last.category,
            last.family,
        )
        return Turn(request, going_on(growth, request, self._left - 1, self._tokens, self._stream))


def going_on(
    growth: Growth, last: Request, left: int, tokens: TokenSource, stream: random.Random
) -> GrowingConversation | None:
    """Return the conversation of which `last` was a turn and `left` turns are to come; None when it is
    over."""
    longest = len(last.prompt) + len(last.answer) + growth.messages.most
    if left == 0 or longest > growth.most:
        return None
    return GrowingConversation(growth, last, left, tokens, stream)
