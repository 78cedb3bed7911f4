"""One request inside an engine."""

from dataclasses import dataclass

from kvcompass.engine_model.holding import Holding
from kvcompass.engine_model.request import EngineRequest
from kvcompass.engine_model.token_chain import TokenChain


@dataclass(slots=True, eq=False)
class Job:
    """A request and how far it is."""

    request: EngineRequest
    chain: TokenChain
    """Tokens whose KV is or will be cached."""
    prompt: int
    """Tokens."""
    answer: int
    """Tokens."""
    holding: Holding | None = None
    """None while it waits, and when it is over."""
    cached_tokens: int = 0
    cached_host_tokens: int = 0
    computed: int = 0
    """Prompt tokens whose KV is there, reused ones included."""
    joined: int = 0
    """Decode steps that had been taken when it joined the batch, with its first token."""

    def generated(self, steps: int) -> int:
        """Answer tokens there are after so many decode steps of the engine; it has joined the batch."""
        return 1 + steps - self.joined if steps > self.joined else 1
