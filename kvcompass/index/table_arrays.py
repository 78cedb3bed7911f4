"""The arrays of a writer's table."""

import numpy as np

from kvcompass.index.image_bytes import new_image
from kvcompass.index.shape import TableSize
from kvcompass.kernels.arrays import U64
from kvcompass.kernels.state import COUNTS, PIN_LIMIT, Table


def new_table(size: TableSize, table_id: int, salt: int, workers: U64) -> Table:
    """An empty table. `workers` (uint64[worker slots, 2]) tells what is held; it is kept, not copied."""
    image = new_image(size, table_id, salt)
    return Table(
        words=image.words,
        row=image.row,
        slot_key=np.zeros(size.slots, np.uint64),
        slot_entry=np.zeros(size.slots, np.uint32),
        edges=np.zeros((size.slots, 4), np.uint32),
        heads=np.zeros(size.nodes, np.uint32),
        free=np.zeros(size.slots, np.uint32),
        pins=np.zeros(2 * PIN_LIMIT, np.uint32),
        counts=np.zeros(COUNTS, np.int64),
        workers=workers,
    )


def blank_table(like: Table) -> Table:
    """What stands for no table, with the array types of one."""
    return Table(*(np.zeros((1,) * array.ndim, array.dtype) for array in like))._replace(
        row=np.zeros_like(like.row), counts=np.zeros_like(like.counts)
    )
