"""Tables as text: for the screen and for documents."""

from collections.abc import Sequence

Row = Sequence[str]


def plain(head: Row, rows: Sequence[Row]) -> str:
    """Columns padded to their widest cell; the first is left-aligned."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    )


def markdown(head: Row, rows: Sequence[Row]) -> str:
    """A Markdown table; all columns but the first are right-aligned."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
