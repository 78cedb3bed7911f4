"""Where commands print."""

from typing import Final

from rich.console import Console

_PIPED_WIDTH: Final = 200


def wide_console() -> Console:
    """A terminal's own width; into a file or a pipe, nothing is folded to one."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console
