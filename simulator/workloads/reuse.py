"""What a cache without end would reuse: the most that any policy can save on a workload."""

from dataclasses import dataclass

import numpy as np

from simulator.workloads.tokens import Tokens


@dataclass(slots=True)
class Reuse:
    """Sums over requests."""

    requests: int = 0
    blocks: int = 0
    """Full ones."""
    reused_blocks: int = 0
    tokens: int = 0
    reused_tokens: int = 0

    @property
    def ratio(self) -> float:
        """Share of the prompts' tokens."""
        return self.reused_tokens / self.tokens if self.tokens else 0.0


class EndlessCache:
    """One cache of whole blocks for everybody, in which nothing is ever evicted and nothing takes time.

    It keeps a number for every block, so its memory grows with what it has seen.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._known: set[int] = set()
        self.reuse = Reuse()

    def ask(self, prompt: Tokens, answer: Tokens | None = None) -> int:
        """Return how many of a prompt's tokens are cached, then cache it, with its answer if that is
        given."""
        names = self._names(prompt)
        reused = next((i for i, name in enumerate(names) if name not in self._known), len(names))
        if answer is not None:
            names = self._names(np.concatenate((prompt, answer)))
        self._known.update(names)
        self.reuse.requests += 1
        self.reuse.blocks += len(prompt) // self._block_size
        self.reuse.reused_blocks += reused
        self.reuse.tokens += len(prompt)
        self.reuse.reused_tokens += reused * self._block_size
        return reused * self._block_size

    def _names(self, tokens: Tokens) -> list[int]:
        """Name each full block by its content and all before it."""
        full = len(tokens) // self._block_size
        name, names = 0, []
        for block in tokens[: full * self._block_size].reshape(full, self._block_size):
            name = hash((name, block.tobytes()))
            names.append(name)
        return names
