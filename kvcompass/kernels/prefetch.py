"""Asking for memory before it is needed: an instruction when compiled, nothing when interpreted."""

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from kvcompass.kernels.arrays import Words
from kvcompass.kernels.jit import JIT

Ask = Callable[[Words, np.uint64], None]


def _nothing(array: Words, index: np.uint64) -> None:
    """Ask for nothing."""


def _instruction() -> Ask:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    tools: Any = cgutils
    flag, byte = ir.IntType(32), ir.IntType(8).as_pointer()
    to_read, keep, data = flag(0), flag(3), flag(1)

    @intrinsic
    def load_soon(typing: Any, words: Any, index: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
            kind = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
            function = tools.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [address, to_read, keep, data])
            return context.get_dummy_value()

        return types.void(words, types.uint64), emit

    return cast(Ask, load_soon)


prefetch: Final[Ask] = _instruction() if JIT else _nothing
"""Start to load the cache line of element `index` of an array, counted flat; it may lie anywhere."""
