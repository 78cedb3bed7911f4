"""What a dashboard is made of, before it is JSON: rows of panels that ask questions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Unit(StrEnum):
    """Grafana's unit ids that are used here."""

    REQUESTS_A_SECOND = "reqps"
    EVENTS_A_SECOND = "ops"
    EVENTS_A_MINUTE = "opm"
    PACKETS_A_SECOND = "pps"
    TOKENS_A_SECOND = "suffix: tok/s"
    SHARE = "percentunit"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "µs"
    BYTES = "bytes"
    COUNT = "short"
    STATE = "none"
    """A code that value mappings put into words."""


class Colour(StrEnum):
    """One meaning each, on every panel."""

    GOOD = "green"
    WATCH = "yellow"
    ACT = "red"
    NEUTRAL = "blue"
    ABSENT = "gray"


@dataclass(frozen=True, slots=True)
class Step:
    """From `value` on, `colour`; None: from the bottom."""

    value: float | None
    colour: Colour


NO_STEPS = (Step(None, Colour.NEUTRAL),)
"""Nothing a person could be asked to act on."""


def steps(*, watch: float | None = None, act: float | None = None) -> tuple[Step, ...]:
    """Good below the first; the values are in the panel's unit."""
    above = [(watch, Colour.WATCH), (act, Colour.ACT)]
    return (
        Step(None, Colour.GOOD),
        *(Step(value, colour) for value, colour in above if value is not None),
    )


@dataclass(frozen=True, slots=True)
class Words:
    """What a code is called, and its colour."""

    text: str
    colour: Colour


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel, and how each of its series is called."""

    expression: str
    legend: str = ""


class Shape(StrEnum):
    """Grafana's panel types that are used here."""

    STAT = "stat"
    LINES = "timeseries"
    STATES = "state-timeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One question of an operator, and the queries that answer it."""

    id: int
    """Stays what it is for ever: links to a panel name it. Free of the others'."""
    title: str
    description: str
    """What is shown, and what to do when it is bad."""
    unit: Unit
    queries: tuple[Query, ...]
    shape: Shape = Shape.LINES
    width: int = 8
    """Of 24."""
    steps: tuple[Step, ...] = NO_STEPS
    stacked: bool = False
    largest: float | None = None
    """Top of the axis; None fits it to the data. Every axis begins at 0 at the latest."""
    words: Mapping[int, Words] = field(default_factory=dict)
    colours: Mapping[str, Colour] = field(default_factory=dict)
    """Of series with a fixed meaning, by name."""
    nothing: str = "no data"
    """Said when the queries give no value."""
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels on one subject."""

    id: int
    title: str
    panels: tuple[Panel, ...]
