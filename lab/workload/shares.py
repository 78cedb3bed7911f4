"""How much of a workload's prompts was already said, and where."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Shares:
    """Counts over a sequence. `threshold` is in tokens."""

    requests: int
    threshold: int
    prompt_tokens: int
    shared: int
    """Requests that share at least `threshold` leading tokens with an earlier request of any region."""
    shared_elsewhere_only: int
    """Those among them whose earlier requests all came from other regions."""

    @property
    def shared_part(self) -> float:
        """`shared` over `requests`."""
        return self.shared / self.requests if self.requests else 0.0

    @property
    def shared_elsewhere_only_part(self) -> float:
        """`shared_elsewhere_only` over `requests`."""
        return self.shared_elsewhere_only / self.requests if self.requests else 0.0


def prefix_shares(prompts: Sequence[npt.NDArray[np.int32]], regions: Sequence[str], threshold: int) -> Shares:
    """Counts shares over prompts (tokens, in sending order) and the regions they were sent from.

    Cost: one SHA-256 over `threshold` tokens a prompt.
    """
    seen: dict[bytes, set[str]] = {}
    shared = elsewhere_only = 0
    for tokens, region in zip(prompts, regions, strict=True):
        if len(tokens) < threshold:
            continue
        head = hashlib.sha256(np.ascontiguousarray(tokens[:threshold]).tobytes()).digest()
        before = seen.setdefault(head, set())
        shared += bool(before)
        elsewhere_only += bool(before) and region not in before
        before.add(region)
    return Shares(
        requests=len(prompts),
        threshold=threshold,
        prompt_tokens=sum(len(tokens) for tokens in prompts),
        shared=shared,
        shared_elsewhere_only=elsewhere_only,
    )
