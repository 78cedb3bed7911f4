"""What a block cache says of itself."""

from enum import Enum
from itertools import chain
from typing import Final

import numpy as np

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model.run import Run

VRAM = "GPU"
"""SGLang's name of the medium."""
DRAM = "CPU_PINNED"
"""SGLang's name of the medium."""
_TOKEN: Final = np.dtype("<i4")


class TierEvents(Enum):
    """What an engine with a DRAM tier says about it; SGLang learned it in two steps."""

    UNTOLD = "0.5.10"
    """Nothing: a block is stored when it is first computed and removed (from `GPU`) when no tier has it."""
    NOT_RECOMPUTED = "0.5.11"
    """Every change, but not that a block which only DRAM held was computed once more. Up to 0.5.20."""
    ALL = "0.5.23"
    """Every change."""


class CacheEvents:
    """Events queue until they are taken. The first ever is AllBlocksCleared, as engines say."""

    def __init__(self, page_size: int, told: TierEvents) -> None:
        self.tiers_told = told is not TierEvents.UNTOLD
        self.recomputed_told = told is TierEvents.ALL
        self._page_size = page_size
        self._last: BlockStored | None = None
        self.queued: list[EngineEvent] = [AllBlocksCleared()]

    def take(self) -> list[EngineEvent]:
        """Events since the last call, in order."""
        events, self.queued = self.queued, []
        return events

    def stored(self, run: Run, start: int, end: int, medium: str, scope: str) -> None:
        """Blocks `start` to `end` of a run are in a tier."""
        names, page, last = run.names[start:end], self._page_size, self._last
        if last is not None and names is last.hashes:
            # A whole run, and the other tier has just got it.
            event = BlockStored(names, last.parent, last.tokens, page, medium, scope)
        else:
            parent: int | None = None
            if start:
                parent = run.names[start - 1]
            elif run.parent is not None and run.parent.names:
                parent = run.parent.names[-1]
            tokens = np.frombuffer(run.data, _TOKEN, (end - start) * page, 4 * start * page)
            event = BlockStored(names, parent, tokens, page, medium, scope)
        self._last = event
        self.queued.append(event)

    def removed(self, names: list[tuple[int, ...]], medium: str) -> None:
        """One eviction's removals, by run as they went: told parents before children, as SGLang does."""
        in_order = names[0] if len(names) == 1 else tuple(chain.from_iterable(reversed(names)))
        if in_order:
            self.queued.append(BlockRemoved(in_order, medium))

    def cleared(self) -> None:
        """Nothing is held any more."""
        self.queued.append(AllBlocksCleared())
