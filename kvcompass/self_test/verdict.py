"""What a comparison of an engine's reading with an edge's may find."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Cause(StrEnum):
    """Why an engine's tokens are not an edge's. A closed set; the values are shown."""

    CHAT_TEMPLATE = "chat_template"
    TOKENIZER = "tokenizer"
    BOS = "bos"
    """One of both puts a begin-of-text token before the prompt."""
    BLOCK_SIZE = "block_size"
    MODEL = "model"
    SCOPE = "scope"
    """The blocks are told under an adapter or a salt, under which no edge looks."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Every whole block of the probe is what the edge reads."""

    tokens: int
    """Of the probe that were compared."""
    tail: int = 0
    """Tokens that the engine counts more at the prompt's end (fewer, if negative): no block holds them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Engine and edge read the probe differently."""

    cause: Cause
    """The likely one."""
    position: int = 0
    """First token of the edge's reading that the engine has otherwise."""
    shown_from: int = 0
    expected: tuple[int, ...] = ()
    """Tokens around it, as the edge has them, from `shown_from` on; empty where none can be shown."""
    observed: tuple[int, ...] = ()
    """And as the engine has them."""
    detail: str = ""
    """What else is known, as words: how many tokens are added, the size of the blocks, the scope."""


class Unheard(StrEnum):
    """Why nothing can be said yet. A closed set."""

    NOTHING = "nothing"
    """No block was told that could be the probe's."""
    INCOMPLETE = "incomplete"
    """Some of its blocks were not told."""
    AMBIGUOUS = "ambiguous"
    """It cannot be told from other prompts of the same length."""


Verdict: TypeAlias = Agreement | Difference | Unheard
