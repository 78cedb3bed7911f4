"""Made-up content: tokens that mean nothing, equal where content is shared and different where it is not."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.streams import array_stream, random_stream

Tokens = NDArray[np.int32]

VOCABULARY: Final = 128_256
"""Llama-3.1's. Tokens from here on are marks: each begins a text that occurs once."""
TOKENS_MOST: Final = 1 << 20
"""A text has fewer."""


class TokenSource:
    """Texts of one run. `shared` texts are drawn token by token, for they are made once and kept; `fresh` and
    `answer` are cut from a pool, for they are made for every request."""

    def __init__(self, seed: int) -> None:
        self._draws = array_stream(seed, "workload.text")
        self._places = random_stream(seed, "workload.text places").random
        self._pool = self._draws.integers(0, VOCABULARY, TOKENS_MOST, np.int32)
        self._marks = VOCABULARY

    def shared(self, length: int) -> Tokens:
        """Return a new text of `length` tokens, to be kept by the caller and used in many prompts."""
        return self._draws.integers(0, VOCABULARY, length, np.int32)

    def fresh(self, length: int) -> Tokens:
        """Return a text that differs from all others in its first token."""
        text = self.answer(length).copy()
        self._marks += 1
        text[0] = self._marks
        return text

    def answer(self, length: int) -> Tokens:
        """Return a text that follows something fresh, or whose chance likeness to another (1 in a million)
        does not matter. A view, not to be written."""
        assert 0 < length < TOKENS_MOST
        start = int(self._places() * (TOKENS_MOST - length))
        return self._pool[start : start + length]
