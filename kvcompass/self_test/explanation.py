"""A difference in words: where the two readings part, the likely cause, and what to change."""

from collections.abc import Mapping
from typing import Final

from kvcompass.self_test.verdict import Cause, Difference

FIELDS: Final[Mapping[Cause, str]] = {
    Cause.CHAT_TEMPLATE: "chat_template",
    Cause.TOKENIZER: "tokenizer",
    Cause.BOS: "chat_template",
    Cause.BLOCK_SIZE: "block_size",
    Cause.MODEL: "model",
    Cause.SCOPE: "sharing_group",
}
"""What of the plan contradicts the engine."""

_LIKELY: Final[Mapping[Cause, str]] = {
    Cause.CHAT_TEMPLATE: "another chat template",
    Cause.TOKENIZER: "another tokenizer",
    Cause.BOS: "a begin-of-text token that only one of them adds",
    Cause.BLOCK_SIZE: "another block size",
    Cause.MODEL: "another model",
    Cause.SCOPE: "an adapter or salt",
}
FIXES: Final[Mapping[Cause, str]] = {
    Cause.CHAT_TEMPLATE: "make the plan's model.chat_template a copy of the model's own, or start the engine "
    "with the plan's: --chat-template FILE",
    Cause.TOKENIZER: "make the plan's model.tokenizer the tokenizer.json that the engine loads, of the same "
    "revision, or start the engine with the plan's: --tokenizer-path DIR (vLLM: --tokenizer DIR)",
    Cause.BOS: "write the token's text at the beginning of model.chat_template, or take bos_token out of it "
    "where the engine adds none",
    Cause.BLOCK_SIZE: "start the engine with the plan's model.block_size: --page-size N "
    "(vLLM: --block-size N)",
    Cause.MODEL: "start the engine with the plan's model.id: --served-model-name ID; or mend its url",
    Cause.SCOPE: "start the engine without a default adapter, or name the salt's group as the worker's "
    "sharing_group",
}
"""What to change, by cause."""


def parting(difference: Difference, spelled: Mapping[int, str]) -> str:
    """Return where two readings part and the likely cause, as one line for people.

    Args:
        difference: Between an engine and an edge.
        spelled: Text by token id, of those that could be decoded; others are shown as numbers.
    """
    parts = [f"engine and edge read prompts differently, likely by {_LIKELY[difference.cause]}"]
    if difference.detail:
        parts.append(difference.detail)
    if difference.expected or difference.observed:
        edge = _shown(difference.expected, difference, spelled)
        engine = _shown(difference.observed, difference, spelled)
        parts.append(f"from token {difference.position} on the edge reads {edge}, the engine {engine}")
    return "; ".join(parts)


def explained(difference: Difference, spelled: Mapping[int, str]) -> str:
    """Return the same, and what to change."""
    return f"{parting(difference, spelled)}; {FIXES[difference.cause]}"


def foreign(url: str, events: str) -> str:
    """Return that events are not an engine's, and what to change.

    Args:
        url: Of the engine that was asked.
        events: Where its events are listened to.
    """
    return (
        f"what {events} tells is not what {url} stores: of conversations sent there nothing is told. Set the "
        "worker's events and replay, or its url, so that both are of one engine; if they are, restart it"
    )


def _shown(tokens: tuple[int, ...], difference: Difference, spelled: Mapping[int, str]) -> str:
    """Tokens as quoted texts, the first one that differs in angle brackets."""
    marked = difference.position - difference.shown_from
    words = [repr(spelled[token]) if spelled.get(token) else str(token) for token in tokens]
    return " ".join(f">{word}<" if i == marked else word for i, word in enumerate(words)) or "nothing"
