"""Faults of a plan, collected so that all of them are reported at once."""

from kvcompass.errors import PlanError


class Faults:
    """An ordered list of (TOML path, message)."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: str, message: str) -> None:
        """Record one fault."""
        self._found.append((path, message))

    def raise_any(self) -> None:
        """Raise a `PlanError` of all faults, if there are any."""
        if self._found:
            raise PlanError(tuple(self._found))
