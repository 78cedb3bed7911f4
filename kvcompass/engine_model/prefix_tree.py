"""The tree of what a cache holds: runs of pages, shared as far as prompts are equal."""

from collections.abc import Iterator
from typing import Final

from kvcompass.engine_model.block_names import BlockNames, hashed_names, page_digests
from kvcompass.engine_model.run import Run

NOTHING: Final = Run(None, b"", (), [], 0)
"""Where a path starts that matches nothing."""


Match = tuple[list[Run], Run | None, int]
"""How far pages are in the tree: runs that match from end to end; a run below them of which only the first
pages match, or only those may; how many of it."""


class PrefixTree:
    """A tree for each scope, by what is hashed before its first page."""

    def __init__(self, page_size: int, names: BlockNames) -> None:
        self.page_bytes = 4 * page_size
        self._hashed = names is BlockNames.HASHED
        self._roots: dict[bytes, Run] = {}
        self._serial = 0

    def __iter__(self) -> Iterator[Run]:
        """Every run."""
        pending = [run for root in self._roots.values() for run in root.children.values()]
        while pending:
            run = pending.pop()
            pending.extend(run.children.values())
            yield run

    def root(self, seed: bytes) -> Run:
        """The root of a scope; NOTHING where there is none."""
        return self._roots.get(seed, NOTHING)

    def planted(self, seed: bytes) -> Run:
        """The same, made if there is none. Something has to be put under it."""
        root = self._roots.get(seed)
        if root is None:
            root = self._roots[seed] = Run(None, b"", (), [seed], 0)
        return root

    def match(self, run: Run, data: bytes, at: int, limit: int) -> Match:
        """Follow pages `at` to `limit` of `data` down from `run`. Costs by the runs."""
        page = self.page_bytes
        path: list[Run] = []
        while at < limit:
            start = at * page
            child = run.children.get(data[start : start + page])
            if child is None:
                break
            blocks = len(child.names)
            if len(child.data) > blocks * page:
                child.data = child.data[: blocks * page]
            if blocks > limit - at or not data.startswith(child.data, start):
                most = min(blocks, limit - at)
                return path, child, _common_pages(child.data, data, start, most, page)
            path.append(child)
            run = child
            at += blocks
        return path, None, 0

    def create(self, parent: Run, data: bytes) -> Run:
        """A run below `parent` that no tier holds yet. Hashes its pages, where names are hashes."""
        blocks = len(data) // self.page_bytes
        first = self._serial + 1
        self._serial += blocks
        if self._hashed:
            digests = page_digests(parent.digests[-1], data, self.page_bytes)
            run = Run(parent, data, hashed_names(digests), digests, first)
        else:
            run = Run(parent, data, tuple(range(first, first + blocks)), [], first)
        parent.children[data[: self.page_bytes]] = run
        return run

    def truncate(self, run: Run) -> None:
        """Forget the blocks of a run that no tier holds, and its tree when nothing is left of it."""
        if run.truncate(self.page_bytes):
            return
        parent = run.parent
        if parent is not None and parent.parent is None and not parent.children:
            del self._roots[parent.digests[0]]

    def clear(self) -> None:
        """Forget everything."""
        self._roots.clear()


def _common_pages(one: bytes, other: bytes, start: int, most: int, page: int) -> int:
    """How many first pages of `one`, 1 to `most`, `other` has at `start`; the first is known to agree."""
    least = 1
    while least < most:
        middle = (least + most + 1) // 2
        if other.startswith(one[: middle * page], start):
            least = middle
        else:
            most = middle - 1
    return least
