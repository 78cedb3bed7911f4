"""Whether a view is its unit's table, and a table what agents hold, by what components say of themselves.

Words are the JSON of their operations listeners: lines of `shards` of an edge, `details` of a unit, a
worker's part of an agent's `details`. Digests are compared at an equal place only: news takes its time.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

Words: TypeAlias = Mapping[str, Any]


class Agreement(StrEnum):
    """How a view stands to its unit's table."""

    SAME = "same"
    """Equal, at an equal place."""
    ELSEWHERE = "elsewhere"
    """At another sequence of the same life of the unit: nothing can be said of it."""
    OTHER_LIFE = "other_life"
    """It follows another life of the unit, or none."""
    DIFFERENT = "different"
    """At an equal place, and not equal: the view is wrong."""


def view_and_table(view: Words, unit: Words) -> Agreement:
    """Of one of an edge's `shards` and the `details` of the shard's unit."""
    if view["unit_epoch"] != unit["epoch"]:
        return Agreement.OTHER_LIFE
    if view["applied_sequence"] != unit["sequence"]:
        return Agreement.ELSEWHERE
    return Agreement.SAME if view["digest"] == unit["digest"] else Agreement.DIFFERENT


def table_is_held(unit: Words, worker_id: str, worker: Words) -> bool:
    """Whether what a unit has for a worker (`details`) is what the worker's agent says that it holds."""
    kept: Words = unit["holdings"][worker_id]
    held: Words = worker["holdings"][str(unit["shard"])]
    return kept == held
