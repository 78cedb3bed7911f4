"""What to say of a name in a file that nothing goes by."""

import difflib
from collections.abc import Iterable


def meant_by(name: str, known: Iterable[str]) -> str | None:
    """The known name that is so close that it must have been meant, if any."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


def unknown_key(name: str, known: Iterable[str], *, list_known: bool = True) -> str:
    """The message of a key that a section does not have; `list_known` ends it with those that it has."""
    names = list(known)
    meant = meant_by(name, names)
    message = "unknown key" if meant is None else f"unknown key, did you mean {meant}?"
    if not list_known:
        return message
    return f"{message}{';' if meant is None else ''} known here: {', '.join(names)}"
