"""The prefix cache in its plainest form: two sets of token tuples. Slow, obviously right."""

import math
from dataclasses import dataclass, field

Prefix = tuple[int, ...]


@dataclass(eq=False)
class NaiveHolding:
    prefixes: list[Prefix] = field(default_factory=list)
    room: int = 0
    loaded: int = 0
    workload: str = ""


@dataclass(eq=False)
class NaiveBlock:
    """What policies look at."""

    created: int
    last_use: int
    used_us: int
    workload: str
    hits: int = 0


class NaiveCache:
    """A block is named by all tokens up to its end. Victims are found by looking at every block."""

    def __init__(self, page_size: int, capacity: int, dram_capacity: int = 0, policy: str = "lru") -> None:
        self.page_size = page_size
        self.free = capacity
        self.dram_free = dram_capacity
        self.blocks: dict[Prefix, NaiveBlock] = {}
        self.vram: set[Prefix] = set()
        self.dram: set[Prefix] = set()
        self.holdings: list[NaiveHolding] = []
        self.clock = 0
        self.created = 0
        self.removed: dict[str, list[Prefix]] = {"GPU": [], "CPU_PINNED": []}
        """Victims of each tier in the order they went."""
        self.set_policy(policy)

    def set_policy(self, policy: str) -> None:
        self.policy = policy
        self.uses: list[str] = []
        """A category for each use of a block."""
        self.gaps: list[tuple[str, int]] = []
        """A category and a time for each use that was followed by another."""
        self.lives: dict[str, list[int]] = {"GPU": [], "CPU_PINNED": []}
        """How long each victim had been idle."""

    def pages(self, tokens: list[int]) -> list[Prefix]:
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [tuple(tokens[:end]) for end in ends]

    def locked(self) -> set[Prefix]:
        return {prefix for holding in self.holdings for prefix in holding.prefixes}

    def match(self, tokens: list[int], limit: int) -> int:
        count = 0
        for prefix in self.pages(tokens)[:limit]:
            if prefix not in self.vram | self.dram:
                break
            count += 1
        return count

    def open(
        self, tokens: list[int], limit: int, total: int, at_us: int, workload: str
    ) -> NaiveHolding | None:
        path = self.pages(tokens)[: self.match(tokens, limit)]
        cold = [prefix for prefix in path if prefix not in self.vram]
        room = total - len(path)
        evictable = self.vram - self.locked() - set(path)
        if room + len(cold) > self.free + len(evictable):
            return None
        self.clock += 1
        holding = NaiveHolding(path, room, len(cold), workload)
        self.holdings.append(holding)
        for prefix in path:
            self.use(prefix, at_us, workload)
        life = self.life("GPU")
        while self.free < room + len(cold):
            victim = self.worst("GPU", self.leaves(self.vram) - self.locked(), at_us, life)
            self.vram.remove(victim)
            self.free += 1
        self.vram.update(cold)
        self.free -= room + len(cold)
        return holding

    def store(self, holding: NaiveHolding, tokens: list[int], at_us: int) -> None:
        self.clock += 1
        for prefix in holding.prefixes:
            self.blocks[prefix].last_use = self.clock
            self.blocks[prefix].used_us = at_us
        for prefix in self.pages(tokens)[len(holding.prefixes) :]:
            holding.room -= 1
            if prefix in self.vram | self.dram:
                self.use(prefix, at_us, holding.workload)
            else:
                self.created += 1
                self.blocks[prefix] = NaiveBlock(self.created, self.clock, at_us, holding.workload)
                self.uses.append(holding.workload)
            if prefix in self.vram:
                self.free += 1
            self.vram.add(prefix)
            holding.prefixes.append(prefix)
        missing = [prefix for prefix in holding.prefixes if prefix not in self.dram]
        life = self.life("CPU_PINNED")
        while self.dram_free < len(missing) and (leaves := self.leaves(self.dram) - self.vram):
            self.dram.remove(self.worst("CPU_PINNED", leaves, at_us, life))
            self.dram_free += 1
        copied = missing[: self.dram_free]
        self.dram.update(copied)
        self.dram_free -= len(copied)

    def close(self, holding: NaiveHolding) -> None:
        self.holdings.remove(holding)
        self.free += holding.room

    def clear(self) -> None:
        self.free += len(self.vram)
        self.dram_free += len(self.dram)
        self.vram.clear()
        self.dram.clear()

    def leaves(self, tier: set[Prefix]) -> set[Prefix]:
        return tier - {prefix[: -self.page_size] for prefix in tier}

    def use(self, prefix: Prefix, at_us: int, workload: str) -> None:
        block = self.blocks[prefix]
        self.gaps.append((block.workload, at_us - block.used_us))
        self.uses.append(workload)
        block.hits += 1
        block.last_use, block.used_us, block.workload = self.clock, at_us, workload

    def life(self, medium: str) -> float:
        """Mean idle time of what was evicted before; a minute is the prior."""
        return (sum(self.lives[medium]) + 60e6) / (len(self.lives[medium]) + 1)

    def worst(self, medium: str, candidates: set[Prefix], now_us: int, life: float) -> Prefix:
        def rank(prefix: Prefix) -> tuple[float, ...]:
            block = self.blocks[prefix]
            match self.policy:
                case "lru":
                    return (block.last_use, block.created)
                case "lfu":
                    return (block.hits, block.last_use, block.created)
                case "fifo":
                    return (block.created,)
                case _:
                    return (self.worth(block, now_us, life), block.last_use, block.created)

        victim = min(candidates, key=rank)
        self.lives[medium].append(now_us - self.blocks[victim].used_us)
        self.removed[medium].append(victim)
        return victim

    def worth(self, block: NaiveBlock, now_us: int, life: float) -> float:
        """Log of the chance that a block is used within a life in the cache; a minute is the prior."""
        gaps = [gap for workload, gap in self.gaps if workload == block.workload]
        share = (len(gaps) + 1) / (self.uses.count(block.workload) + 2)
        gap = (sum(gaps) + 60e6) / (len(gaps) + 1)
        idle = now_us - block.used_us
        return math.log(share) - idle / gap + math.log(-math.expm1(-life / gap))
