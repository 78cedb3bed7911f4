"""The one decorator of all kernels.

Compiled code is cached in a folder named by a digest of the kernel's source file, of every kernel file it
imports and of the flags: numba alone would run a stale build when a callee or a constant in another file
changes. So kernel files import numpy and other kernel files, and nothing else whose change could matter.
`KVCOMPASS_KERNEL_CACHE` names the parent folder (default `~/.cache/kvcompass`). `KVCOMPASS_JIT=0` leaves the
functions as plain Python on numpy arrays, where an index out of bounds raises.
"""

import functools
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba
import numpy as np

from kvcompass.kernels.checked import checked

P = ParamSpec("P")
R = TypeVar("R")

JIT: Final = os.environ.get("KVCOMPASS_JIT", "1") != "0"
_FLAGS: Final[dict[str, Any]] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
    "_nrt": False,
    "forceinline": True,
}
"""`_nrt` off is no reference counting: kernels allocate nothing, and every array outlives the call. With it
each array read from a tuple costs two atomic operations, which doubles the time of an edit. `forceinline`
makes one function of an entry point and all that it calls: a table is some 130 words, and to hand it on in a
real call is to copy them all, which nearly doubles the time of an edit again."""
_FOLDER: Final = Path(__file__).parent
_IMPORT: Final = re.compile(rb"^from kvcompass\.kernels\.(\w+) import ", re.MULTILINE)


@functools.cache
def cache_folder(module: str) -> Path:
    """Folder for the compiled kernels of one file of this package, of exactly the sources it has now."""
    sources: dict[str, bytes] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        if name not in sources:
            sources[name] = (_FOLDER / f"{name}.py").read_bytes()
            pending += [found.decode() for found in _IMPORT.findall(sources[name])]
    versions = (numba.__version__, np.__version__, sorted(_FLAGS.items()), sorted(sources.items()))
    parent = os.environ.get("KVCOMPASS_KERNEL_CACHE") or Path.home() / ".cache" / "kvcompass"
    return Path(parent) / f"{module}-{hashlib.sha256(repr(versions).encode()).hexdigest()[:16]}"


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call with given types, or load the cached build.

    Array arguments must be writeable and C-contiguous: a read-only array (`np.frombuffer`) would be compiled
    anew as another type, so callers copy those.
    """
    return _compiled(function) if JIT else _interpreted(function)


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    config: Any = numba.config
    previous = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder(function.__module__.rpartition(".")[2]))
    try:
        return cast(Callable[P, R], numba.njit(cache=True, **_FLAGS)(function))
    finally:
        config.CACHE_DIR = previous


def _interpreted(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(over="ignore"):
            return function(*map(checked, args), **kwargs)

    return call
