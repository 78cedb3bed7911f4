"""What a cache without end would reuse: the most that any policy can save on a workload."""

from dataclasses import dataclass

from kvcompass.engine_model.token_chain import TokenChain
from simulator.workloads.tokens import Tokens


@dataclass(slots=True)
class Reuse:
    """Sums over requests."""

    requests: int = 0
    tokens: int = 0
    reused_tokens: int = 0

    @property
    def ratio(self) -> float:
        """Share of the prompts' tokens."""
        return self.reused_tokens / self.tokens if self.tokens else 0.0


class EndlessCache:
    """One cache of whole blocks for everybody, in which nothing is ever evicted and nothing takes time.

    Keeps 8 bytes and a set's entry for every block, so its memory grows with what it has seen.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._known: set[int] = set()
        self.reuse = Reuse()

    def ask(self, prompt: Tokens, answer: Tokens) -> int:
        """Return how many of a prompt's tokens are cached, then cache it with its answer.

        The last token of a prompt is always computed, and that of an answer has no KV, as in an engine.
        """
        chain = TokenChain(prompt, self._block_size)
        reusable = (len(prompt) - 1) // self._block_size
        blocks = next(
            (i for i, name in enumerate(chain.hashes[:reusable]) if name not in self._known), reusable
        )
        chain.extend(answer[:-1])
        self._known.update(chain.hashes)
        self.reuse.requests += 1
        self.reuse.tokens += len(prompt)
        self.reuse.reused_tokens += blocks * self._block_size
        return blocks * self._block_size
