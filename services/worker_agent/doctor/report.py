"""The doctor's findings for people and for scripts."""

import json
from collections.abc import Sequence
from typing import Final

from services.worker_agent.doctor.check import Check, Mark

EXIT_FAILED = 1
"""Something must be changed."""
EXIT_UNASKED = 2
"""The engine does not answer, or the command line or a file is at fault."""


_LINE_MOST: Final = 600
"""Letters of what was found; an engine's own words may be long."""


def as_lines(checks: Sequence[Check]) -> str:
    """One line a check, and one that sums them up."""
    width = max((len(check.name) for check in checks), default=0)
    lines = [
        f"{check.mark.value:<4}  {check.name:<{width}}  {_printable(check.said)}"
        + (f"  ->  {_printable(check.fix)}" if check.fix else "")
        for check in checks
    ]
    counts = {mark: sum(check.mark is mark for check in checks) for mark in Mark}
    summary = ", ".join(f"{count} {mark.value}" for mark, count in counts.items())
    return "\n".join([*lines, summary]) + "\n"


def _printable(words: str) -> str:
    """What an engine says goes to a terminal, which obeys control characters."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words[:_LINE_MOST])
    return shown if len(words) <= _LINE_MOST else f"{shown}…"


def as_json(engine: str, checks: Sequence[Check]) -> str:
    """One line of JSON."""
    told = [
        {"name": check.name, "mark": check.mark.value.lower(), "said": check.said, "fix": check.fix}
        for check in checks
    ]
    return json.dumps({"engine": engine, "fails": exit_status(checks) != 0, "checks": told}) + "\n"


def exit_status(checks: Sequence[Check]) -> int:
    """0 when nothing fails."""
    return EXIT_FAILED if any(check.mark is Mark.FAIL for check in checks) else 0
