"""Lets SGLang's server start where there is no GPU: Python runs this first in every process of an engine.

The engine's first process also ends with the test that started it, as `lab.child` does it (Linux).

SGLang imports packages of CUDA kernels, and of images and sound, wherever it runs, and uses none of them to
serve a text model with `--device cpu`. To SGLang, and to nobody else, those that are not installed look as if
they were there and empty: any name in them is a class, which refuses to be made.
"""

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import types
from collections.abc import Sequence
from typing import Any

_ABSENT = frozenset(os.environ.get("KVCOMPASS_STAND_INS", "").split())
"""Top-level packages that are stood in for."""
_FOR = "sglang"
"""The package to which they look installed."""


class _Empty(type):
    """A class of classes that have whatever attribute is asked for, itself such a class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _class(f"{cls.__name__}.{name}")


def _class(name: str) -> _Empty:
    def refuse(self: object, *_: object, **__: object) -> None:
        raise RuntimeError(f"{name} is not installed; a stand-in was used")

    return _Empty(name, (), {"__init__": refuse})


class _StandIn(types.ModuleType):
    __path__: Sequence[str] = ()
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _class(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: what is installed goes first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _ABSENT or not _asked_by(_FOR):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _asked_by(package: str) -> bool:
    """Whether the code that imports is the package's own, or a stand-in's."""
    frame = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and not name.startswith(("importlib", "_frozen_importlib")):
            return name.partition(".")[0] in (package, *_ABSENT)
        frame = frame.f_back  # type: ignore[assignment]
    return False


_find_spec = importlib.util.find_spec


def _find_installed(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
    """`importlib.util.find_spec`, by which others look whether they may use a package: not a stand-in."""
    return None if name.partition(".")[0] in _ABSENT else _find_spec(name, package)


importlib.util.find_spec = _find_installed
sys.meta_path.append(_Finder())

_PR_SET_PDEATHSIG = 1
if sys.platform == "linux" and os.environ.get("KVCOMPASS_ENDS_WITH") == str(os.getppid()):
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
