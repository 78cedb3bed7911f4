"""What a trial measured, against what was asked for."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure and the range that it must be in."""

    name: str
    measured: float
    least: float
    most: float
    unit: str

    @property
    def ok(self) -> bool:
        """Whether it is; NaN never is."""
        return self.least <= self.measured <= self.most


def near(name: str, measured: float, wanted: float, tolerance: float, unit: str) -> Outcome:
    """An outcome around a wanted value."""
    return Outcome(name, measured, wanted - tolerance, wanted + tolerance, unit)


def exactly(name: str, measured: float, wanted: float, unit: str) -> Outcome:
    """An outcome that has one right value."""
    return Outcome(name, measured, wanted, wanted, unit)


def table(outcomes: Iterable[Outcome]) -> str:
    """One line an outcome."""
    lines = [f"{'':<52}{'measured':>12}{'least':>11}{'most':>11}"]
    lines += [
        f"{each.name:<52}{each.measured:>12.4g}{each.least:>11.4g}{each.most:>11.4g}  {each.unit:<10}"
        f"{'ok' if each.ok else 'FAILED'}"
        for each in outcomes
    ]
    return "\n".join(lines)
