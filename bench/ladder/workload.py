"""What a workload's requests could reuse: a prompt length and the longest match, a pair a request."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAGE = 16
"""Tokens an engine reuses or not as a whole."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in arrival order, replayed against one cache that never forgets."""

    name: str
    source: str
    """What it was made of, in a phrase; synthetic ones say so."""
    prompt: NDArray[np.int64]
    """int64[n], tokens."""
    matched: NDArray[np.int64]
    """int64[n], tokens of the longest prefix that an earlier request shared; below the prompt's length."""

    def __post_init__(self) -> None:
        assert self.prompt.shape == self.matched.shape
        assert (self.matched >= 0).all()
        assert (self.matched < self.prompt).all()

    @property
    def hit_ratio(self) -> float:
        """Share of all tokens that an endless cache would not compute again."""
        return float(self.matched.sum() / self.prompt.sum())

    def histogram(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct matches in tokens, ascending, and how many requests have each."""
        return np.unique(self.matched, return_counts=True)


def replay(
    name: str, source: str, requests: Iterable[tuple[int, Sequence[Hashable]]], block: int
) -> Workload:
    """Match every request against all before it.

    Args:
        name: Of the workload.
        source: What it was made of.
        requests: Prompt length in tokens and its blocks; equal blocks mean equal prefixes, so a block's
            identity must depend on those before it. The last may be part filled.
        block: Tokens a block.
    """
    seen: set[Hashable] = set()
    prompt, matched = [], []
    for tokens, blocks in requests:
        known = next((i for i, one in enumerate(blocks) if one not in seen), len(blocks))
        seen.update(blocks[known:])
        prompt.append(tokens)
        matched.append(min(known * block, tokens - 1))
    return Workload(name, source, np.array(prompt, np.int64), np.array(matched, np.int64))
