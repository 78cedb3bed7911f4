"""Engines that store what they read of a conversation, as the self-test hears them: made of plain lists."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from kvcompass.engine_events import BlockStored, EngineNews
from kvcompass.self_test.probe import Rendering
from kvcompass.self_test.stored_chains import StoredChains


@dataclass(frozen=True)
class Reading:
    """A conversation in tokens: what the template writes before each text, and the texts."""

    joints: tuple[tuple[int, ...], ...]
    """One more than texts."""
    texts: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> list[int]:
        tokens: list[int] = []
        for joint, text in zip(self.joints, (*self.texts, ()), strict=True):
            tokens += [*joint, *text]
        return tokens

    @property
    def rendering(self) -> Rendering:
        contents, at = [], 0
        for joint, text in zip(self.joints, self.texts, strict=False):
            at += len(joint)
            contents.append(range(at, at + len(text)))
            at += len(text)
        return Rendering(np.array(self.tokens, dtype=np.int32), tuple(contents))


def reading(random: Random, *, opening: int = 3, text: int = 40, turns: int = 3) -> Reading:
    """Template tokens are below 100, texts' from 1,000 on, and the first text is like no other."""
    joints = [tuple(random.randrange(100) for _ in range(opening))]
    joints += [tuple(random.randrange(100) for _ in range(4)) for _ in range(turns)]
    texts = [tuple(random.randrange(1_000, 30_000) for _ in range(text)) for _ in range(turns)]
    return Reading(tuple(joints), tuple(texts))


@dataclass
class StoringEngine:
    """Tells each prompt's whole blocks, those already stored once only."""

    page: int
    random: Random
    scope: str = ""
    joined: int = 4
    """Blocks of one event, at most."""
    _names: dict[tuple[int, ...], int] = field(default_factory=dict)

    def take(self, tokens: Sequence[int]) -> list[BlockStored]:
        """Events of one prompt."""
        events: list[BlockStored] = []
        parent = None
        run: list[tuple[int, int | None, list[int]]] = []
        for end in range(self.page, len(tokens) + 1, self.page):
            prefix = tuple(tokens[:end])
            if prefix not in self._names:
                self._names[prefix] = self.random.getrandbits(63)
                run.append((self._names[prefix], parent, list(tokens[end - self.page : end])))
            parent = self._names[prefix]
        while run:
            count = self.random.randint(1, self.joined)
            events.append(self._event(run[:count]))
            run = run[count:]
        return events

    def _event(self, run: list[tuple[int, int | None, list[int]]]) -> BlockStored:
        tokens = np.array([token for _, _, block in run for token in block], dtype=np.int32)
        return BlockStored(tuple(name for name, _, _ in run), run[0][1], tokens, self.page, "GPU", self.scope)


def heard(events: Sequence[EngineNews]) -> StoredChains:
    """All of it, one event a batch."""
    chains = StoredChains()
    for event in events:
        chains.hear([event])
    return chains
