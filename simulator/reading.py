"""Something told by an engine, that can be read only where, and as soon as, it can be known."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reading(Generic[T]):
    """A value of one region and one moment. Kept and passed on freely; `value` asserts that it had time."""

    __slots__ = ("_may_read", "_value", "at_us", "region")

    def __init__(self, value: T, may_read: Callable[[int, int], bool], region: int, at_us: int) -> None:
        """`may_read`: whether what was true in a region at a time can be known here and now."""
        self._value = value
        self._may_read = may_read
        self.region = region
        self.at_us = at_us

    @property
    def value(self) -> T:
        """The value, as it was at `at_us`."""
        assert self._may_read(self.region, self.at_us), "no policy sees what it could not know yet"
        return self._value
