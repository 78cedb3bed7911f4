"""Single blocks that follow one another in a batch, as one event.

SGLang before 0.5.18 tells each block by itself, and vLLM each that leaves. What an event costs to read and to
take in hardly depends on how many blocks it has, so a chain of them is joined first.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

_NAMES: Final = "block_hashes"
_LONGEST: Final = 8
"""Longer stores have fields of single blocks (vLLM's `extra_keys`)."""


def neighbours_joined(items: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Yield the events of a batch, neighbours joined, and how many each was made of.

    Joined are a store in array form with the stores of the blocks below it, in the same medium, adapter and
    salt, and removals that differ in the blocks alone. Everything else, and whatever looks unlike an event,
    is left as it is. Joined items are changed.
    """
    last: Any = None
    count = 0
    for item in items:
        if type(item) is list and _joins(last, item):
            last[1] += item[1]
            if item[0] == "BlockStored":
                last[3] += item[3]
            count += 1
            continue
        if type(item) is dict and _joins_map(last, item):
            last[_NAMES] += item[_NAMES]
            count += 1
            continue
        if count:
            yield last, count
        last, count = item, 1
    if count:
        yield last, count


def _joins_map(last: Any, item: dict[Any, Any]) -> bool:
    """Whether a removal in map form goes on where the last event ended."""
    return (
        type(last) is dict
        and item.get("type") == "BlockRemoved"
        and type(item.get(_NAMES)) is list
        and type(last.get(_NAMES)) is list
        and last | {_NAMES: None} == item | {_NAMES: None}
    )


def _joins(last: Any, item: list[Any]) -> bool:
    """Whether an item in array form goes on where the last one ended."""
    size = len(item)
    if type(last) is not list or len(last) != size or size < 2 or last[0] != item[0]:
        return False
    names, more = last[1], item[1]
    if type(names) is not list or type(more) is not list:
        return False
    if item[0] == "BlockRemoved":
        return bool(item[2:] == last[2:])
    return (
        item[0] == "BlockStored"
        and 5 <= size <= _LONGEST
        and bool(names)
        and type(item[2]) in (int, bytes)
        and item[2] == names[-1]
        and item[4:] == last[4:]
        and type(item[4]) is int
        and type(item[3]) is list
        and type(last[3]) is list
        and len(item[3]) == len(more) * item[4]
        and len(last[3]) == len(names) * item[4]
    )
