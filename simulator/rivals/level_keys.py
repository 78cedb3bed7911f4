"""The six lengths at which hash schemes cut a prompt, and the hash of what lies before the cut."""

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEVELS: Final = tuple(128 << level for level in range(6))
"""Tokens. The paper has six levels (Table 1) and names no chunk sizes: a quantum, doubling, which is how
`kvcompass.levels.paper` reads its lengths within a region."""


def placement_key(prompt: NDArray[np.int32]) -> tuple[int, int]:
    """Return the level that places a prompt and its 64-bit key there.

    The level is the longest that the prompt fills; the shortest, with all of the prompt, if it fills none.
    So prompts that share what lies before their level meet at one worker, without anybody remembering any. A
    conversation that outgrows its level goes to another worker (docs/reproduction/rivals.md has the other
    reading).
    """
    level = 0
    for index, length in enumerate(LEVELS):
        if length <= len(prompt):
            level = index
    covered = prompt[: LEVELS[level]].astype("<i4", copy=False)
    digest = hashlib.sha256(level.to_bytes(1, "big") + covered.tobytes()).digest()
    return level, int.from_bytes(digest[:8], "big")
