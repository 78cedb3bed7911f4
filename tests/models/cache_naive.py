"""The prefix cache in its plainest form: sets of token tuples. Slow, obviously right."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class NaiveHolding:
    prefixes: list[tuple[int, ...]] = field(default_factory=list)
    room: int = 0


class NaiveCache:
    """A block is named by all tokens up to its end. Victims are found by looking at every block."""

    def __init__(self, page_size: int, capacity: int) -> None:
        self.page_size = page_size
        self.free = capacity
        self.last_use: dict[tuple[int, ...], tuple[int, int]] = {}
        self.holdings: list[NaiveHolding] = []
        self.clock = 0
        self.serial = 0
        self.removed: list[tuple[int, ...]] = []

    def pages(self, tokens: list[int]) -> list[tuple[int, ...]]:
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [tuple(tokens[:end]) for end in ends]

    def locked(self) -> set[tuple[int, ...]]:
        return {prefix for holding in self.holdings for prefix in holding.prefixes}

    def match(self, tokens: list[int], limit: int) -> int:
        count = 0
        for prefix in self.pages(tokens)[:limit]:
            if prefix not in self.last_use:
                break
            count += 1
        return count

    def open(self, tokens: list[int], limit: int, total: int) -> NaiveHolding | None:
        path = self.pages(tokens)[: self.match(tokens, limit)]
        room = total - len(path)
        evictable = set(self.last_use) - self.locked() - set(path)
        if room > self.free + len(evictable):
            return None
        self.clock += 1
        holding = NaiveHolding(path, room)
        self.holdings.append(holding)
        self.touch(path)
        while self.free < room:
            victim = min(self.leaves() - self.locked(), key=self.last_use.__getitem__)
            del self.last_use[victim]
            self.removed.append(victim)
            self.free += 1
        self.free -= room
        return holding

    def store(self, holding: NaiveHolding, tokens: list[int]) -> None:
        self.clock += 1
        self.touch(holding.prefixes)
        for prefix in self.pages(tokens)[len(holding.prefixes) :]:
            holding.room -= 1
            if prefix in self.last_use:
                self.free += 1
                self.touch([prefix])
            else:
                self.serial += 1
                self.last_use[prefix] = (self.clock, self.serial)
            holding.prefixes.append(prefix)

    def close(self, holding: NaiveHolding) -> None:
        self.holdings.remove(holding)
        self.free += holding.room

    def leaves(self) -> set[tuple[int, ...]]:
        parents = {prefix[: -self.page_size] for prefix in self.last_use}
        return set(self.last_use) - parents

    def touch(self, path: list[tuple[int, ...]]) -> None:
        for prefix in path:
            self.last_use[prefix] = (self.clock, self.last_use[prefix][1])
