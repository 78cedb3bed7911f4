"""Something told by an engine, that can be read only where, and as soon as, it can be known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A value of one region and one moment. Kept and passed on freely; `value` asserts that it had time."""

    _value: T
    _may_read: Callable[[int, int], bool]
    """Whether what was true in a region at a time can be known here and now."""
    region: int
    at_us: int

    @property
    def value(self) -> T:
        """The value, as it was at `at_us`."""
        assert self._may_read(self.region, self.at_us), "no policy sees what it could not know yet"
        return self._value
