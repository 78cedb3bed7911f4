"""Names of blocks that belong to another scope than the worker's requests."""

from collections.abc import Iterable

from kvcompass.engine_events import BlockHash


class ForeignBlocks:
    """The latest names, a bounded number of them.

    vLLM tells of a prompt's first block only what salt it has; what is below can be known by its parent. A
    name that was dropped makes its children detached blocks, which are no more credited than foreign ones.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[BlockHash, None] = {}
        """In the order they were noted."""

    def __contains__(self, name: BlockHash | None) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def note(self, names: Iterable[BlockHash]) -> None:
        """These are another scope's."""
        for name in names:
            self._names.pop(name, None)
            self._names[name] = None
        while len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def clear(self) -> None:
        """Another engine process may name its own blocks so."""
        self._names.clear()
