"""Faults of a plan, collected so that all of them are reported at once."""

from kvcompass.errors import PlanError


class Faults:
    """An ordered list of (TOML path, message)."""

    __slots__ = ("_found", "_ids", "_listed")

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []
        self._ids: dict[str, str] = {}
        self._listed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: str, message: str) -> None:
        """Record one fault."""
        self._found.append((path, message))

    def name(self, entry: str, given: str) -> None:
        """Tell what an entry such as `worker[3]` calls itself."""
        self._ids[entry] = given

    def first_of(self, section: str) -> bool:
        """Whether this is the first time that it is asked of a section: what it takes is listed once."""
        first = section not in self._listed
        self._listed.add(section)
        return first

    def raise_any(self) -> None:
        """Raise a `PlanError` of all faults, if there are any."""
        if self._found:
            raise PlanError(tuple(self._found), self._ids)
