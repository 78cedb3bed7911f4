"""What an agent asks an edge about a conversation, and the answer: `proto/kvcompass/v1/prompt.proto`."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from kvcompass.roles.messages import Handshake, Refusal
from kvcompass.self_test.probe import ProbeMessage, Rendering

MESSAGES_MOST: Final = 512
LETTERS_MOST: Final = 1 << 18
SPELL_MOST: Final = 64
"""Of one request. A probe in blocks of 4,096 tokens takes a half of each."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Asks how the edge renders and tokenizes messages, and for the texts of tokens."""

    handshake: Handshake
    messages: tuple[ProbeMessage, ...] = ()
    """None: nothing is rendered."""
    spell: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The answer."""

    rendering: Rendering
    """Of the messages; without tokens where there were none."""
    spelled: tuple[str, ...] = ()
    """A text for each token of `spell`; empty where it has none."""


ReadReply: TypeAlias = Reading | Refusal


def read_refusal(request: ReadRequest) -> Refusal | None:
    """The refusal of a request that asks for too much; None for one that is served."""
    letters = sum(len(message.content) for message in request.messages)
    for field, asked, most in (
        ("messages", len(request.messages), MESSAGES_MOST),
        ("messages", letters, LETTERS_MOST),
        ("spell", len(request.spell), SPELL_MOST),
    ):
        if asked > most:
            return Refusal(field, f"{asked} are more than {most}; ask for less at once")
    return None
