"""Names of a prompt's chunks, each for its chunk and all before it, computed for a whole prompt at once."""

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
_OFFSET: Final = np.uint64(0x2545F4914F6CDD1D)
"""So that a chunk of zeros is one more chunk too."""
_STEP: Final = 0x9E3779B97F4A7C15
_STEP_BACK: Final = pow(_STEP, -1, 1 << 64)
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """`base` to the 1 to `count`, modulo 2^64."""
    return np.multiply.accumulate(np.full(count, base, np.uint64))


_FORTH: Final = _powers(_STEP, 1 << 14)
_BACK: Final = _powers(_STEP_BACK, 1 << 14)


def page_size_of(fleet: Fleet) -> int:
    """Return the tokens of a block, which engines must agree on for their caches to be compared."""
    sizes = {engine.page_size for engine in fleet.engines}
    if len(sizes) != 1:
        raise SimulationError(
            f"caches are compared block by block: give all engines one page size, not {sorted(sizes)}",
            field="engines.page_size",
        )
    return sizes.pop()


def chunk_names(tokens: NDArray[np.int32], chunk: int, parent: int = ROOT) -> list[int]:
    """Return a 64-bit name for each full chunk: equal where everything up to its end is, else different.

    The name of a chunk is step * (name before + hash of the chunk), modulo 2^64, so a prompt may be named in
    parts. By chance two of n different prefixes share a name with a probability of n^2 / 2^65. Some 10 us.

    Args:
        tokens: int32[n].
        chunk: Tokens a chunk, up to 4,096.
        parent: Name of what lies before.
    """
    count = len(tokens) // chunk
    assert count <= len(_FORTH), "a prompt of more chunks than there are powers"
    words = tokens[: count * chunk].astype(np.uint64).reshape(count, chunk)
    hashes = np.einsum("ij,j->i", words, _FACTORS[:chunk]) + _OFFSET
    hashes ^= hashes >> np.uint64(32)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(29)
    # With s the step and i from 0: name[i] = s^(i+1) * (parent + sum over j <= i of hash[j] * s^-j).
    hashes[1:] *= _BACK[: max(count - 1, 0)]
    names: list[int] = ((np.add.accumulate(hashes) + np.uint64(parent)) * _FORTH[:count]).tolist()
    return names
