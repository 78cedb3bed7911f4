"""What the double says: words drawn from the prompt's hash, so equal prompts get equal answers anywhere."""

import hashlib
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.prompt import PromptEncoder

SHORTEST = 24
LONGEST = 280
"""Tokens of an answer that nothing cuts short, drawn evenly from SHORTEST to LONGEST."""
SENTENCE = 12
"""Every so many tokens there is a full stop."""
SCANNED_TOKENS = 20_000
"""Only this much of a vocabulary is searched for words, which keeps the start of a process short."""
END_TOKENS = ("<|im_end|>", "<|eot_id|>", "</s>", "<|endoftext|>")


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Tokens and their texts, one each. `stopped`: it ended of itself, with the end token."""

    tokens: NDArray[np.int32]
    pieces: list[str]
    stopped: bool


class AnswerBook:
    """Draws answers. Words are single tokens, so that an answer sent back as text is the same tokens."""

    def __init__(self, encoder: PromptEncoder) -> None:
        pieces = [encoder.decode([token]) for token in range(min(encoder.vocabulary, SCANNED_TOKENS))]
        self._pieces = pieces
        self._openers = _matching(pieces, r"[A-Z][a-z]+") or [0]
        self._words = _matching(pieces, r" [a-z]{2,}") or _matching(pieces, r"[a-z]{2,}") or [0]
        self._stops = _matching(pieces, r"\.")
        self.end_token = next((i for token in END_TOKENS if (i := encoder.token_id(token)) is not None), None)

    def answer(self, prompt: NDArray[np.int32], limit: int, *, ignore_end: bool) -> Answer:
        """The answer to a prompt, at most `limit` tokens; exactly `limit` when the end is ignored.

        A shorter answer is the beginning of a longer one.
        """
        source = hashlib.shake_128(prompt.astype("<i4").tobytes())
        natural = SHORTEST + int.from_bytes(source.digest(2), "big") % (LONGEST - SHORTEST + 1)
        stopped = not ignore_end and natural <= limit
        count = natural if stopped else limit
        draws = np.frombuffer(source.digest(2 + 2 * count), dtype=">u2")[1:]
        tokens = np.array(self._words, dtype=np.int32)[draws % len(self._words)]
        if count:
            tokens[0] = self._openers[int(draws[0]) % len(self._openers)]
        if self._stops:
            tokens[SENTENCE - 1 :: SENTENCE] = self._stops[0]
        texts = [self._pieces[token] for token in tokens]
        if stopped and self.end_token is not None:
            tokens[-1] = self.end_token
            texts[-1] = ""
        return Answer(tokens, texts, stopped)


def _matching(pieces: list[str], pattern: str) -> list[int]:
    return [token for token, piece in enumerate(pieces) if re.fullmatch(pattern, piece)]
