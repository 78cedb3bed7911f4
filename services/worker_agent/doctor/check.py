"""One line of the doctor's findings."""

from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    """How a check came out. A closed set; the values are printed."""

    OK = "ok"
    WARN = "warn"
    """The engine is served; what would make it better is said."""
    FAIL = "FAIL"
    """It cannot be served, or nothing of what it holds would ever be found."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was found."""

    name: str
    mark: Mark
    said: str
    fix: str = ""
    """What to change: a flag to paste, or words. Empty where nothing is to be changed."""


def ok(name: str, said: str) -> Check:
    """All is well."""
    return Check(name, Mark.OK, said)


def warn(name: str, said: str, fix: str) -> Check:
    """It could be better."""
    return Check(name, Mark.WARN, said, fix)


def fail(name: str, said: str, fix: str) -> Check:
    """It must be changed."""
    return Check(name, Mark.FAIL, said, fix)
