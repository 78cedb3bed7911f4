"""Cuts a very long text into parts of a size that a demo can afford."""

from collections.abc import Iterator


def parts(text: str, characters: int) -> Iterator[str]:
    """Consecutive parts of about `characters`, cut at line or sentence ends; a short rest is dropped.

    A text that is short as a whole is one part.
    """
    start = 0
    while start == 0 or len(text) - start >= characters // 2:
        if len(text) - start <= characters:
            yield text[start:]
            return
        window = text[start : start + characters]
        cut = max(window.rfind("\n"), window.rfind(". ") + 1)
        end = start + (cut if cut > characters // 2 else characters)
        yield text[start:end]
        start = end
