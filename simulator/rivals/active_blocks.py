"""Blocks of the prompts that are being answered: each counts once at a worker, however many share it."""

from collections.abc import Sequence

from simulator.rivals.holder_masks import depths


class ActiveBlocks:
    """By chunk names (`chunk_names`); a table of names is a prefix trie."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._table: dict[int, int] = {}
        self._users: list[dict[int, int]] = [{} for _ in range(workers)]
        """At each worker: how many prompts use a block."""

    def distinct(self, worker: int) -> int:
        """Blocks in use at a worker."""
        return len(self._users[worker])

    def add(self, names: Sequence[int], worker: int) -> None:
        """A prompt goes there."""
        table, users, bit = self._table, self._users[worker], 1 << worker
        for name in names:
            count = users.get(name, 0)
            users[name] = count + 1
            if not count:
                table[name] = table.get(name, 0) | bit

    def remove(self, names: Sequence[int], worker: int) -> None:
        """It has left."""
        table, users, bit = self._table, self._users[worker], 1 << worker
        for name in names:
            count = users[name] - 1
            if count:
                users[name] = count
                continue
            del users[name]
            table[name] ^= bit
            if not table[name]:
                del table[name]

    def shared(self, names: Sequence[int]) -> dict[int, int]:
        """Return how many of a prompt's leading blocks are in use, by worker where any is."""
        get = self._table.get
        found = depths((get(name, 0) for name in names), self._workers)
        return {worker: depth.any_tier for worker, depth in found.items()}
