"""Names of the array types that kernels take. All are C-contiguous and writeable."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

U8: TypeAlias = NDArray[np.uint8]
U32: TypeAlias = NDArray[np.uint32]
U64: TypeAlias = NDArray[np.uint64]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
F64: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.void]
"""Of a structured dtype, which the kernel names."""
Words: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.uint64]
"""Words of an image; their width is its layout (`kvcompass.kernels.buckets`)."""
Int: TypeAlias = int | np.int64
"""A scalar that is int64 once compiled, and either when interpreted."""
