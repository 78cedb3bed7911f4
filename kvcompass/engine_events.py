"""What an engine says about its KV cache, whatever the engine and its version."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

BlockHash: TypeAlias = int | bytes
"""An engine's own name of a block and everything before it. Opaque: never hashed, never indexed."""


@dataclass(slots=True, eq=False)
class BlockStored:
    """A chain of blocks is now resident in a medium.

    Never changed; not frozen, for that takes five times as long to make, and events are made by the million.
    """

    hashes: tuple[BlockHash, ...]
    """One a block, from the one after `parent` on."""
    parent: BlockHash | None
    """None: the chain starts at the first token."""
    tokens: npt.NDArray[np.int32]
    """int32[len(hashes) * block_size]."""
    block_size: int
    """Tokens a block."""
    medium: str | None
    """As the engine spells it; None means the GPU."""
    scope: str = ""
    """Salt or adapter that separates these blocks from equal tokens; empty for none."""


@dataclass(slots=True)
class BlocksCopied:
    """Blocks told before are now resident in a further medium; they are named and not spelled. Never changed.

    vLLM's copies on the host, unless `self_describing_kv_events` is set.
    """

    hashes: tuple[BlockHash, ...]
    medium: str | None
    scope: str = ""


@dataclass(slots=True)
class BlockRemoved:
    """Blocks left a medium. May repeat, and may name blocks that were never stored. Never changed."""

    hashes: tuple[BlockHash, ...]
    medium: str | None


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is resident any more, in any medium."""


@dataclass(frozen=True, slots=True)
class EventsLost:
    """Here the engine said something that was not heard: lost on the way, or not to be understood."""

    removals: bool
    """Whether blocks may have left by it; else it is only known to lack stores."""


EngineEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
"""What every engine says."""
EngineNews: TypeAlias = EngineEvent | BlocksCopied | EventsLost
"""What is heard of one."""
