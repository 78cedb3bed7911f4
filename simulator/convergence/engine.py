"""An engine without a model: blocks that it holds, and what it says of them. What it holds is the truth."""

import hashlib
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.keys import prefix_keys
from kvcompass.tier import Tier

BLOCK: Final = 16
"""Tokens a block."""
_FAMILIES: Final = 6
_TRUNK: Final = 4
_BRANCHES: Final = 3
_BRANCH: Final = 8
_GPU, _HOST = 1, 2
_MEDIA: Final = {_GPU: "GPU", _HOST: "CPU"}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block of some prompt, with everything before it."""

    number: int
    name: int
    """The engine's own."""
    parent: "Block | None"
    tokens: npt.NDArray[np.int32]
    depth: int
    """Blocks up to it."""
    key: int | None
    """Of the prefix that ends with it, if that has a registered length."""


@cache
def forest(namespace: bytes, lengths: tuple[int, ...]) -> tuple[tuple[Block, ...], ...]:
    """All prompts there are, as chains of blocks: families share a trunk and branch. The same in all runs."""
    drawn = np.random.default_rng(1)
    blocks: list[Block] = []

    def chain(before: list[Block], count: int) -> list[Block]:
        grown = list(before)
        for _ in range(count):
            tokens = drawn.integers(0, 50_000, BLOCK, np.int32)
            whole = np.concatenate([*(block.tokens for block in grown), tokens])
            key = None
            if whole.size in lengths:
                key = int(prefix_keys(namespace, whole, np.array([whole.size], np.int32))[0])
            name = int.from_bytes(hashlib.sha256(whole.tobytes()).digest()[:8], "big", signed=True)
            block = Block(len(blocks), name, grown[-1] if grown else None, tokens, len(grown) + 1, key)
            blocks.append(block)
            grown.append(block)
        return grown

    chains: list[tuple[Block, ...]] = []
    for _ in range(_FAMILIES):
        trunk = chain([], _TRUNK)
        chains += [tuple(chain(trunk, _BRANCH)) for _ in range(_BRANCHES)]
    return tuple(chains)


class Listener(Protocol):
    """Who follows an engine's events, beside it."""

    def on_live(self, run: int, number: int, events: list[EngineEvent]) -> None:
        """The engine published a batch."""

    def on_broken(self, run: int) -> None:
        """The engine's process is gone, and its sockets with it."""


@dataclass(slots=True)
class Engine:
    """A worker's cache, and the newest batches of events for whoever asks for them again."""

    chains: tuple[tuple[Block, ...], ...]
    ring_batches: int
    """Kept for a replay; 0: it has no replay socket."""
    kept: dict[int, Block] = field(default_factory=dict)
    """Blocks that never leave once they are there, by number."""
    run: int = 1
    """Which process it is."""
    is_up: bool = True
    is_paused: bool = False
    held: dict[int, int] = field(default_factory=dict)
    """By number of a block, where it is: GPU, host memory or both."""
    next_batch: int = 0
    ring: "deque[tuple[int, list[EngineEvent]]]" = field(default_factory=deque)
    listener: Listener | None = None
    ever: set[int] = field(default_factory=set)
    """Numbers of all blocks that were here at some time."""

    @property
    def answers(self) -> bool:
        """It runs."""
        return self.is_up and not self.is_paused

    def truth(self, lengths: set[int]) -> dict[int, Tier]:
        """Tier of each prefix of these lengths that is whole here, by key: worked out block by block."""
        found: dict[int, Tier] = {}
        for chain in self.chains:
            tier = Tier.VRAM
            for block in chain:
                where = self.held.get(block.number, 0)
                if not where:
                    break
                if not where & _GPU:
                    tier = Tier.DRAM
                if block.key is not None and block.depth * BLOCK in lengths:
                    found[block.key] = tier
        return found

    # --- what happens in it -----------------------------------------------------------------------

    def take_in_kept(self) -> bool:
        """Have one more of the blocks that never leave. False: all are there."""
        for block in self.kept.values():
            events = self._store([block], _GPU)
            if events:
                self._publish(events)
                return True
        return False

    def churn(self, stream: Random) -> None:
        """Do a few of the things that caches do, as one batch of events."""
        events: list[EngineEvent] = []
        for _ in range(stream.randrange(1, 4)):
            events += self._one(stream)
        if events:
            self._publish(events)

    def speak(self) -> None:
        """Publish a batch with nothing in it."""
        self._publish([])

    def clear(self) -> None:
        """`/flush_cache`."""
        self.held.clear()
        self._publish([AllBlocksCleared()])

    def restart(self) -> None:
        """Another process, with nothing in its cache."""
        old = self.run
        self.run += 1
        self.is_up, self.is_paused = True, False
        self.held.clear()
        self.ring.clear()
        self.next_batch = 0
        if self.listener is not None:
            self.listener.on_broken(old)

    def kill(self) -> None:
        """`kill -9`."""
        self.is_up = self.is_paused = False
        self.held.clear()
        if self.listener is not None:
            self.listener.on_broken(self.run)

    # --- inside -----------------------------------------------------------------------------------

    def _one(self, stream: Random) -> list[EngineEvent]:
        act = stream.random()
        chain = self.chains[stream.randrange(len(self.chains))]
        if act < 0.5:
            return self._store(chain[: stream.randint(1, len(chain))], _GPU)
        block = chain[stream.randrange(len(chain))]
        where = self.held.get(block.number, 0)
        if not where or block.number in self.kept:
            return []
        if act < 0.6:  # copied to host memory
            return self._store([block], _HOST)
        if act < 0.7:  # moved there
            return self._store([block], _HOST) + self._remove([block], _GPU)
        if act < 0.76:  # fetched back
            return self._store([block], _GPU)
        below = chain[block.depth - 1 :] if act < 0.95 else (block,)
        leaves = [each for each in reversed(below) if each.number not in self.kept]
        return self._remove(leaves, _GPU) + self._remove(leaves, _HOST)

    def _store(self, blocks: "tuple[Block, ...] | list[Block]", where: int) -> list[EngineEvent]:
        """One event for each run of blocks that were not there."""
        events: list[EngineEvent] = []
        run: list[Block] = []
        for block in (*blocks, None):
            if block is not None and not self.held.get(block.number, 0) & where:
                self.held[block.number] = self.held.get(block.number, 0) | where
                self.ever.add(block.number)
                run.append(block)
            elif run:
                parent = run[0].parent
                events.append(
                    BlockStored(
                        tuple(each.name for each in run),
                        None if parent is None else parent.name,
                        np.concatenate([each.tokens for each in run]),
                        BLOCK,
                        _MEDIA[where],
                    )
                )
                run = []
        return events

    def _remove(self, blocks: list[Block], where: int) -> list[EngineEvent]:
        gone = [block for block in blocks if self.held.get(block.number, 0) & where]
        for block in gone:
            self.held[block.number] &= ~where
            if not self.held[block.number]:
                del self.held[block.number]
        return [BlockRemoved(tuple(block.name for block in gone), _MEDIA[where])] if gone else []

    def _publish(self, events: list[EngineEvent]) -> None:
        number = self.next_batch
        self.next_batch += 1
        self.ring.append((number, events))
        while len(self.ring) > self.ring_batches:
            self.ring.popleft()
        if self.listener is not None:
            self.listener.on_live(self.run, number, events)
