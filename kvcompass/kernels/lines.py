"""Writing whole lines into a fresh image."""

import numpy as np

from kvcompass.kernels.arrays import I64, U64, Words
from kvcompass.kernels.image import put_word
from kvcompass.kernels.jit import kernel


@kernel
def write_lines(words: Words, row: U64, lines: Words, positions: I64) -> None:
    """Write lines[i] (of the image's dtype, n x words a line) as line positions[i] of an image."""
    width = lines.shape[1]
    for i in range(positions.size):
        for j in range(width):
            put_word(words, row, np.uint64(positions[i] * width + j), np.uint64(lines[i, j]))
