"""Which requests of a trace without session ids go on from an earlier one."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_REMEMBERED: Final = 1 << 18
"""Requests back to which a session is followed, so that memory does not grow with the trace."""


@dataclass(frozen=True, slots=True)
class _Seen:
    at_us: int
    tokens: int
    """Of its prompt and its answer."""
    root: int


class Sessions:
    """Follows conversations by their content.

    A request goes on from an earlier one if that one arrived before it, had at least two full blocks, all of
    which begin its prompt, and its prompt and answer together are no longer than this prompt. Of several it
    goes on from that with the most blocks, and of these the latest. A block's id names all before it too."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._by_last: dict[int, list[_Seen]] = {}
        """By the id of their last full block."""
        self._order: deque[int] = deque()

    def root(
        self, number: int, at_us: int, ids: Sequence[int], prompt_tokens: int, answer_tokens: int
    ) -> int:
        """Note a request and return the number of its conversation's first: its own if it begins one.

        Args:
            number: Of this request, as the caller counts them.
            at_us: Not before the one before.
            ids: Its prompt's blocks.
            prompt_tokens: Of its prompt.
            answer_tokens: Of its answer.
        """
        full = prompt_tokens // self._block_size
        before = self._before(at_us, ids[:full], prompt_tokens)
        root = number if before is None else before.root
        if full >= 2:
            seen = _Seen(at_us, prompt_tokens + answer_tokens, root)
            self._by_last.setdefault(ids[full - 1], []).append(seen)
            self._order.append(ids[full - 1])
            if len(self._order) > _REMEMBERED:
                self._forget(self._order.popleft())
        return root

    def _before(self, at_us: int, ids: Sequence[int], prompt_tokens: int) -> _Seen | None:
        for last in reversed(ids[1:]):
            for seen in reversed(self._by_last.get(last, ())):
                if seen.at_us < at_us and seen.tokens <= prompt_tokens:
                    return seen
        return None

    def _forget(self, last: int) -> None:
        left = self._by_last[last]
        del left[0]
        if not left:
            del self._by_last[last]
