"""Sets of workers as the bits of one number, and how far each of them holds a prompt."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model.cache_events import DRAM
from kvcompass.index.lookup_unit import Matches
from kvcompass.tier import Tier
from simulator.rivals.engine_blocks import EngineBlocks


class Depth(NamedTuple):
    """Blocks of a prompt that a worker holds without a gap."""

    vram: int
    """Those in VRAM, from the first on."""
    any_tier: int


def turns_of(
    events: Sequence[EngineEvent], worker: int, workers: int, blocks: EngineBlocks
) -> Iterator[tuple[list[int], int, bool]]:
    """Yield (names, bit, held) of each event in order: what of a worker's enters or leaves a tier.

    Bits 0 to W-1 of a mask are workers' VRAM, W to 2W-1 their DRAM. Engines say that all is cleared once, at
    their start, when there is nothing yet. A removed block is forgotten when its other tier lacks it too, of
    which `blocks` keeps count.
    """
    for event in events:
        if isinstance(event, BlockStored):
            in_dram = event.medium == DRAM
            yield blocks.stored(event, in_dram), 1 << (worker + workers * in_dram), True
        elif isinstance(event, BlockRemoved):
            in_dram = event.medium == DRAM
            yield blocks.removed(event, in_dram), 1 << (worker + workers * in_dram), False
        else:
            assert isinstance(event, AllBlocksCleared)


def workers_of(bits: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def depths(masks: Iterable[int], workers: int) -> dict[int, Depth]:
    """Walk a prompt's blocks from the first on; returns the workers that hold the first at least.

    Args:
        masks: Of each block in order; read no further than somebody holds everything so far.
        workers: W.
    """
    everyone = (1 << workers) - 1
    alive = everyone
    in_vram = everyone
    vram_ends: dict[int, int] = {}
    ends: dict[int, int] = {}
    depth = 0
    for mask in masks:
        vram = mask & everyone
        still = alive & (vram | mask >> workers)
        if still != alive:
            if depth:
                for worker in workers_of(alive ^ still):
                    ends[worker] = depth
            alive = still
            if not alive:
                break
        if alive & in_vram & ~vram:
            for worker in workers_of(alive & in_vram & ~vram):
                vram_ends[worker] = depth
            in_vram &= vram
        depth += 1
    if depth:
        for worker in workers_of(alive):
            ends[worker] = depth
    return {worker: Depth(vram_ends.get(worker, end), end) for worker, end in ends.items()}


def as_matches(found: dict[int, Depth], workers: int, page_size: int) -> Matches:
    """Return the same as the product's score takes it."""
    match_tokens: NDArray[np.int32] = np.zeros(workers, np.int32)
    tier: NDArray[np.uint8] = np.zeros(workers, np.uint8)
    for worker, depth in found.items():
        match_tokens[worker] = depth.any_tier * page_size
        tier[worker] = Tier.VRAM if depth.vram == depth.any_tier else Tier.DRAM
    return Matches(match_tokens, tier)
