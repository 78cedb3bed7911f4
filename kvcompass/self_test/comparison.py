"""Whether what an engine stored of a probe is what an edge reads in it; if not, where they part and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.self_test.probe import Rendering
from kvcompass.self_test.stored_chains import StoredChain
from kvcompass.self_test.verdict import Agreement, Cause, Difference, Unheard, Verdict

_NONCE_TOKENS: Final = 4
"""The first of the first text: a chain that has them is the probe's. Other prompts begin otherwise."""
_TEXT_TOKENS_LEAST: Final = 16
"""Of a text that is looked for: fewer may be anybody's."""
_JOINED_TOKENS: Final = 4
"""At the beginning of the first text: what is before them may have made them others, as a space does that
joins the first of its digits."""
_MARK_TOKENS_MOST: Final = 2
"""A tokenizer puts a begin-of-text token before a prompt; two where the template has written one already."""
_ANSWER_TOKENS_MOST: Final = 1
"""Of the probe's answer that are stored after it."""
_TAIL_TOKENS: Final = 16
"""Counted more or fewer at a prompt's end, from which on an edge has read another conversation, though pages
be smaller: a template writes less there."""
_BEFORE: Final = 4
_AFTER: Final = 6
"""Tokens shown around the first that differs."""

Tokens = NDArray[np.int32]


def compare(
    rendering: Rendering,
    heard: Sequence[StoredChain],
    *,
    page_fits: Callable[[int], bool],
    salt: str,
    prompt_tokens: int | None,
) -> Verdict:
    """Find the probe among what was heard, and compare it with the edge's reading.

    Args:
        rendering: The edge's.
        heard: Chains stored since the probe was sent, other requests' too.
        page_fits: Whether an engine may have blocks of so many tokens.
        salt: Of the worker's sharing group; the empty scope is accepted beside it.
        prompt_tokens: As the engine counts the probe; None when it does not say.
    """
    count = len(rendering.tokens) if prompt_tokens is None else prompt_tokens
    text = _first_text(rendering)
    chain = _probe_among(rendering, text, heard, count)
    if isinstance(chain, Unheard):
        return chain
    page = chain.block_size
    if not page_fits(page):
        return Difference(Cause.BLOCK_SIZE, detail=f"the engine stores {page} tokens a block")
    if chain.scope not in ("", salt):
        return Difference(Cause.SCOPE, detail=f"the engine stores under {_scope_name(chain.scope)}")
    place = _place(chain, text)
    whole = len(rendering.tokens) // page * page
    tail = count - len(rendering.tokens)
    if not whole:
        return Unheard.AMBIGUOUS
    if place.later:
        agreed = _agreed(chain.tokens, rendering.tokens) if chain.rooted else 0
    else:
        agreed = _agreed(chain.tokens, rendering.tokens[place.start :])
        heard_to = place.start + len(chain.tokens)
        if place.start + agreed >= min(heard_to, whole):
            if abs(tail) >= max(page, _TAIL_TOKENS):
                said = f"the engine counts {count} tokens, the edge {len(rendering.tokens)}"
                return Difference(Cause.CHAT_TEMPLATE, detail=said)
            return Agreement(whole, tail) if heard_to >= whole else Unheard.INCOMPLETE
    if not place.has_text and len(chain.tokens) < count // page * page:
        return Unheard.INCOMPLETE
    return _difference(rendering, text, chain, place, agreed)


@dataclass(frozen=True, slots=True)
class _Text:
    """The first message's, without its first tokens and its last, which may have joined the template's."""

    at: int
    """Its first token's position in the edge's reading."""
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class _Place:
    """How a chain lies on the edge's reading."""

    start: int
    """Position of its first token, where that is known to be one."""
    later: int
    """Tokens by which the first text comes later in the engine's prompt, or earlier, if negative."""
    has_text: bool
    """The first text is in it, token by token."""


def _first_text(rendering: Rendering) -> _Text | None:
    """Return None where the template changes what messages say, so that the edge cannot tell where it is."""
    if not rendering.contents or len(rendering.contents[0]) < _TEXT_TOKENS_LEAST + _JOINED_TOKENS + 1:
        return None
    inner = rendering.contents[0][_JOINED_TOKENS:-1]
    return _Text(inner.start, rendering.tokens[inner.start : inner.stop])


def _probe_among(
    rendering: Rendering, text: _Text | None, heard: Sequence[StoredChain], count: int
) -> StoredChain | Unheard:
    """Return the probe's chain: by its first tokens, by its text, or by its length if no other has that."""
    known = _NONCE_TOKENS + (text.at if text is not None else len(rendering.tokens) // 2)
    best = max(
        (chain for chain in heard if chain.rooted),
        key=lambda chain: _agreed(chain.tokens, rendering.tokens),
        default=None,
    )
    if best is not None and _agreed(best.tokens, rendering.tokens) >= known:
        return best
    if text is not None:
        for chain in heard:
            if _find(text.tokens, chain.tokens) >= 0:
                return chain
    fit = [
        chain for chain in heard if chain.rooted and len(chain.tokens) in _lengths(count, chain.block_size)
    ]
    if len(fit) == 1:
        return fit[0]
    return Unheard.AMBIGUOUS if fit else Unheard.NOTHING


def _lengths(count: int, block_size: int) -> set[int]:
    """Return how many tokens are stored of a prompt of so many, with or without its answer."""
    return {total // block_size * block_size for total in range(count, count + _ANSWER_TOKENS_MOST + 1)} - {0}


def _place(chain: StoredChain, text: _Text | None) -> _Place:
    found = -1 if text is None else _find(text.tokens, chain.tokens)
    if text is None or found < 0:
        return _Place(0, 0, has_text=False)
    later = found - text.at
    if chain.rooted:
        return _Place(0, later, has_text=True)
    # Whole blocks before it are cached, at least one, and nobody knows how many.
    page = chain.block_size
    if later > 0:
        return _Place(0, later + page, has_text=True)
    odd = (later + page // 2) % page - page // 2
    return _Place(0, odd, has_text=True) if odd else _Place(-later, 0, has_text=True)


def _difference(
    rendering: Rendering, text: _Text | None, chain: StoredChain, place: _Place, agreed: int
) -> Difference:
    cause = Cause.TOKENIZER if text is not None and not place.has_text else Cause.CHAT_TEMPLATE
    detail = ""
    if place.later and text is not None:
        more, count = ("more", place.later) if place.later > 0 else ("fewer", -place.later)
        detail = f"the engine has {count} {more} before the first message"
        edges, engines = rendering.tokens[: text.at], chain.tokens[: max(0, text.at + place.later)]
        longer, shorter = (engines, edges) if place.later > 0 else (edges, engines)
        if count <= _MARK_TOKENS_MOST and (not chain.rooted or np.array_equal(longer[count:], shorter)):
            cause = Cause.BOS
    if place.later and not chain.rooted:
        return Difference(cause, detail=f"{detail}, in a part that it had cached")
    first = max(0, agreed - _BEFORE)
    shown = rendering.tokens[place.start :][first : agreed + _AFTER]
    return Difference(
        cause,
        position=place.start + agreed,
        shown_from=place.start + first,
        expected=tuple(shown.tolist()),
        observed=tuple(chain.tokens[first : agreed + _AFTER].tolist()),
        detail=detail,
    )


def _agreed(one: Tokens, other: Tokens) -> int:
    """Return the number of first tokens that both have."""
    most = min(len(one), len(other))
    parted = np.flatnonzero(one[:most] != other[:most])
    return int(parted[0]) if parted.size else most


def _find(part: Tokens, tokens: Tokens) -> int:
    """Return where a part begins in tokens; -1 when it is not there."""
    data, wanted = tokens.tobytes(), part.tobytes()
    place = data.find(wanted)
    while place >= 0 and place % tokens.itemsize:
        place = data.find(wanted, place + 1)
    return place // tokens.itemsize if place >= 0 else -1


def _scope_name(scope: str) -> str:
    if not scope.startswith("adapter:"):
        return "a salt that is not its sharing group's"
    adapter, _, salt = scope.removeprefix("adapter:").partition("\0")
    return f"adapter {adapter}" + (" and a salt" if salt else "")
