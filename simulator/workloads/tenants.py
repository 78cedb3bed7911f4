"""The paper's scale: tenants that replay a workload, each behind a system prompt of its own (5.3)."""

import random
from typing import Final

from simulator.workloads.lengths import Lengths
from simulator.workloads.tokens import Tokens, TokenSource

_SYSTEM_PROMPTS: Final = Lengths(430, 1.0, least=32, most=8_192)
"""225 published system prompts (github danielmiessler/fabric, tokens of a 49K BPE): median 429, log spread
1.0."""


class Tenants:
    """Equally busy tenants."""

    def __init__(self, count: int, tokens: TokenSource, stream: random.Random) -> None:
        self._prompts = [tokens.shared(_SYSTEM_PROMPTS.draw(stream)) for _ in range(count)]
        self._random = stream.random
        self._nobody = tokens.shared(0)

    def next(self) -> tuple[int, Tokens]:
        """Return a tenant and its system prompt; with no tenants, tenant 0 and no tokens."""
        if not self._prompts:
            return 0, self._nobody
        tenant = int(self._random() * len(self._prompts))
        return tenant, self._prompts[tenant]
