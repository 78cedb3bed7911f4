"""The one decorator of all kernels.

Compiled code is cached in a folder named by a digest of every kernel's source and of the flags: numba alone
would run a stale build when a callee or a constant in another file changes. `KVCOMPASS_KERNEL_CACHE` names the
parent folder (default `~/.cache/kvcompass`). `KVCOMPASS_JIT=0` leaves the functions as plain Python on numpy
arrays, where an index past the end raises.
"""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, cast

import numba
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

JIT: Final = os.environ.get("KVCOMPASS_JIT", "1") != "0"
_FLAGS: Final = {"nogil": True, "error_model": "numpy", "boundscheck": False}


def cache_folder() -> Path:
    """Folder of the compiled kernels of exactly these sources, flags and library versions."""
    digest = hashlib.sha256(repr((numba.__version__, np.__version__, sorted(_FLAGS.items()))).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    parent = os.environ.get("KVCOMPASS_KERNEL_CACHE") or Path.home() / ".cache" / "kvcompass"
    return Path(parent) / f"kernels-{digest.hexdigest()[:16]}"


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call with given types, or load the cached build.

    Array arguments must be writeable and C-contiguous: a read-only array (`np.frombuffer`) would be compiled
    anew as another type, so callers copy those.
    """
    if JIT:
        return _compiled(function)
    return _interpreted(function)


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_CACHE_FOLDER)
    try:
        return cast(Callable[P, R], numba.njit(cache=True, **_FLAGS)(function))
    finally:
        numba.config.CACHE_DIR = previous


def _interpreted(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(over="ignore"):
            return function(*args, **kwargs)

    return call


_CACHE_FOLDER: Final = cache_folder() if JIT else Path()
