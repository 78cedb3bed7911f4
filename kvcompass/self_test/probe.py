"""The conversation that goes through an engine, and through an edge, to see whether both read the same."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

TEXT: Final = (
    "This conversation is the self-test of a prefix cache; nobody reads the answer. It's 12 o'clock, 1234567 "
    "and 3.14159 are numbers, don't they'll say.\n\n    def f(x):\n\treturn x ** 2  # two  spaces\n\nÇa va? "
    "Größe, naïve, Žluťoučký kůň; 東京は夜です。 Привет, мир! שלום 🙂👍🏽 — “quoted” … "
    "https://example.org/a_b?c=1&d=%20 snake_case camelCase UPPER [1, 2] {'k': \"v\"} <tag/> $5.00 100% a+b=c"
)
"""Where tokenizers part: digits, white space, code, contractions, marks, other scripts, pictures."""

LEAST_TEXT_TOKENS: Final = 120
"""Of `TEXT`, under any tokenizer in use: most of it is what none has long entries for."""
LEAST_BLOCKS: Final = 4
"""Of a probe: several whole ones."""
LEAST_MESSAGES: Final = 3
"""A user's turn, an answer and another turn: every joint of a template but those of tools."""


@dataclass(frozen=True, slots=True)
class ProbeMessage:
    """One turn. Templates of all models take the roles `user` and `assistant` in turns, and many no other."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, eq=False)
class Rendering:
    """A conversation as an edge reads it."""

    tokens: NDArray[np.int32]
    """int32[n], up to the start of the assistant's next turn."""
    contents: tuple[range, ...]
    """Of each message the tokens that hold nothing but its text; empty where they are not told."""


def probe_messages(nonce: str, block_size: int) -> tuple[ProbeMessage, ...]:
    """Return a conversation of at least `LEAST_BLOCKS` whole blocks.

    Args:
        nonce: Comes first of all that is said, so that no engine has cached what follows. New for each probe,
            without white space, and at least 16 characters of a random alphabet: it is also the mark by
            which the probe is known among the blocks that an engine stores meanwhile.
        block_size: Tokens a block.
    """
    wanted = -(-LEAST_BLOCKS * block_size // LEAST_TEXT_TOKENS)
    count = max(LEAST_MESSAGES, wanted + 1 - wanted % 2)
    return tuple(
        ProbeMessage("assistant" if turn % 2 else "user", f"{nonce if turn == 0 else turn} {TEXT}")
        for turn in range(count)
    )
