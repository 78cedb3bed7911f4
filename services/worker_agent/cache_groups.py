"""Which of an engine's caches hold whole prefixes: vLLM keeps several side by side for hybrid models."""

from enum import Enum, auto
from typing import Any, Final

_WHOLE_PREFIX_KINDS: Final = ("full_attention", "mla_attention", "sink_full_attention")
"""Those that hold every token; windows, chunks and states hold no prefix (vllm.v1.kv_cache_interface)."""
_GROUPS: Final = 256
"""Of one engine, at most; real ones have a handful."""

Group = int | str


class Admission(Enum):
    """What becomes of an event, as far as its cache group goes."""

    TAKEN = auto()
    LEFT = auto()
    """It is about a cache that holds no whole prefixes."""
    TAKEN_BACK = auto()
    """The same, and only now is it told: what was taken from this group before must be forgotten."""


class CacheGroups:
    """Learns the kinds of an engine's groups. Stores tell them, since vLLM 0.22; removals never do.

    A group whose kind was never told counts as one of whole prefixes: vLLM 0.20 numbers its groups and does
    not describe them, and most models have just one.
    """

    def __init__(self) -> None:
        self._whole: dict[Group, bool] = {}
        """What is known of each group of which a store was seen."""

    def of_store(self, group: Any, kind: Any) -> Admission:
        """Judge a store. Both may be None. Raises TypeError, ValueError for what no engine sends."""
        if group is None and kind is None:
            return Admission.TAKEN
        _check(group, kind)
        if kind is None:
            if group not in self._whole:
                self._learn(group, whole=True)
            return Admission.TAKEN if self._whole[group] else Admission.LEFT
        whole = kind in _WHOLE_PREFIX_KINDS
        before = self._whole.get(group, False)
        if group is not None:
            self._learn(group, whole=whole)
        if whole:
            return Admission.TAKEN
        return Admission.TAKEN_BACK if before else Admission.LEFT

    def of_removal(self, group: Any) -> Admission:
        """Judge a removal. Of a group that never stored anything there is nothing to remove.

        Groups share the names of their blocks, so it must not be taken for another group's.
        """
        if group is None:
            return Admission.TAKEN
        _check(group, None)
        return Admission.TAKEN if self._whole.get(group, False) else Admission.LEFT

    def _learn(self, group: Group, *, whole: bool) -> None:
        if group not in self._whole and len(self._whole) >= _GROUPS:
            raise ValueError("an engine has no such number of cache groups")
        self._whole[group] = whole


def _check(group: Any, kind: Any) -> None:
    if group is not None and type(group) not in (int, str):
        raise TypeError("a cache group is a number or a name")
    if kind is not None and type(kind) is not str:
        raise TypeError("the kind of a cache group is a name")
