"""Content for traces that name their prompts' blocks by hash: the same id, the same tokens."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.streams import array_stream
from simulator.workloads.tokens import Tokens, TokenSource
from simulator.workloads.traces.row import Row

_IDS: Final = 1 << 31
_ODD: Final = np.uint32(2_654_435_761)
"""Multiplied by it, ids below 2^31 stay different modulo 2^31, so two blocks differ in every token."""
_MASK: Final = np.uint32((1 << 31) - 1)


class BlockContent:
    """Tokens of blocks of one size. They depend on the id alone, not on a run's seed."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._base: NDArray[np.uint32] = array_stream(0, "workload.blocks").integers(
            0, 1 << 31, block_size, np.uint32
        )

    def prompt(self, ids: Sequence[int], length: int, tokens: TokenSource) -> Tokens:
        """Return the prompt of `length` tokens whose blocks these are.

        The last block may be part filled, and may have an id or none; without one its tokens are fresh.
        """
        starts = np.array(ids, np.int64).astype(np.uint32) * _ODD
        blocks: Tokens = ((starts[:, None] + self._base) & _MASK).view(np.int32).ravel()
        if blocks.size >= length:
            return blocks[:length]
        return np.concatenate((blocks, tokens.fresh(length - blocks.size)))

    def check(self, row: Row, ids: Sequence[int], length: int) -> None:
        """Raise the row's error if so many blocks do not fit its `input_length`, or an id is too large."""
        if ids and max(ids) >= _IDS:
            raise row.error("hash_ids", f"{max(ids)!s:.20} is not below 2^31: number the blocks from 0 on")
        full, all_ = length // self.block_size, -(-length // self.block_size)
        if len(ids) not in (full, all_):
            raise row.error(
                "hash_ids",
                f"{len(ids)} blocks of {self.block_size} tokens for an input_length of {length};"
                f" expected {all_}",
            )
