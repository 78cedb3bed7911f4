"""Names of a prompt's chunks, each for its chunk and all before it."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.fleet import Fleet

ROOT: Final = 0
"""Name of what lies before the first chunk."""

_LONGEST_CHUNK: Final = 4_096
_FACTORS: Final = np.random.Generator(np.random.PCG64(20_260_701)).integers(
    1, 1 << 63, _LONGEST_CHUNK, dtype=np.uint64
) | np.uint64(1)
"""An odd factor for each place in a chunk."""
_STEP: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


def page_size_of(fleet: Fleet) -> int:
    """Return the tokens of a block, which engines must agree on for their caches to be compared."""
    sizes = {engine.page_size for engine in fleet.engines}
    if len(sizes) != 1:
        raise SimulationError(
            f"caches are compared block by block: give all engines one page size, not {sorted(sizes)}",
            field="engines.page_size",
        )
    (size,) = sizes
    if size > _LONGEST_CHUNK:
        raise SimulationError(
            f"a block of {size} tokens is more than the {_LONGEST_CHUNK} that this policy can name",
            field="engines.page_size",
        )
    return size


def chunk_names(tokens: NDArray[np.int32], chunk: int, parent: int = ROOT) -> list[int]:
    """Return a 64-bit name for each full chunk: equal where everything up to its end is, else different.

    By chance two of n different prefixes share a name with a probability of n^2 / 2^65. Some 5 us, and 0.2 us
    a chunk.

    Args:
        tokens: int32[n], contiguous.
        chunk: Tokens a chunk, up to 4,096.
        parent: Name of what lies before: a prompt may be named in parts.
    """
    count = len(tokens) // chunk
    if not count:
        return []
    whole = tokens[: count * chunk]
    # Two tokens a word where they come out even, which takes half the time.
    words = (whole.view(np.uint64) if chunk % 2 == 0 else whole.astype(np.uint64)).reshape(count, -1)
    names = []
    name = parent
    for one in (words @ _FACTORS[: words.shape[1]]).tolist():
        name = (name + (one ^ one >> 29) + 1) * _STEP & _MASK
        names.append(name)
    return names
