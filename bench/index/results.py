"""What the measures find: rows for the table, values for the JSON."""

from dataclasses import dataclass, field
from typing import Any

from bench.index.timing import Timing


@dataclass(slots=True)
class Results:
    """Grows as measures run. JSON names are dotted paths."""

    times: dict[str, Timing] = field(default_factory=dict)
    """By the words of the table's row."""
    figures: dict[str, float] = field(default_factory=dict)
    """Other rows: name with unit, and value."""
    json: dict[str, Any] = field(default_factory=dict)

    def time(self, row: str, timing: Timing, *paths: str, at: str = "") -> None:
        """Add a timing; each path becomes `path.p50` and `path.p99` in us, with `at` a suffix (`p50_85`)."""
        self.times[row] = timing
        for path in paths:
            self.put(f"{path}.p50{at}", timing.p50_us)
            self.put(f"{path}.p99{at}", timing.p99_us)

    def figure(self, row: str, value: float, *paths: str) -> None:
        """Add a value."""
        self.figures[row] = value
        for path in paths:
            self.put(path, value)

    def put(self, path: str, value: object) -> None:
        """Set a JSON value."""
        *folders, name = path.split(".")
        place = self.json
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value

    def table(self) -> str:
        """Everything, as text."""
        lines = [f"{'':52s} {'P50 us':>10s} {'P99 us':>10s} {'a second':>14s}"]
        for row, timing in self.times.items():
            lines.append(f"{row:52s} {timing.p50_us:10.3f} {timing.p99_us:10.3f} {timing.per_s:14,.0f}")
        lines.append("")
        lines += [f"{row:52s} {value:14,.4f}" for row, value in self.figures.items()]
        return "\n".join(lines)
