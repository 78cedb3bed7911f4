"""The block cache against its naive twin, and its laws after every step."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcompass.engine_model.block_cache import BlockCache, Holding
from kvcompass.engine_model.token_chain import TokenChain
from tests.models.cache_naive import NaiveCache, NaiveHolding

PAGE = 2
CAPACITY = 12
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def chain_of(tokens: list[int]) -> TokenChain:
    return TokenChain(np.array(tokens, dtype=np.int32), PAGE)


class CacheBesideItsTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = BlockCache(PAGE, CAPACITY)
        self.twin = NaiveCache(PAGE, CAPACITY)
        self.running: list[tuple[list[int], TokenChain, Holding, NaiveHolding]] = []
        self.names: dict[int, tuple[int, ...]] = {}
        self.resident: set[int] = set()
        assert self.cache.take_events() == [AllBlocksCleared()]

    @rule(tokens=TOKENS, answer=st.integers(0, 4))
    def open(self, tokens: list[int], answer: int) -> None:
        chain = chain_of(tokens)
        total = -(-(len(tokens) + answer) // PAGE)
        limit = (len(tokens) - 1) // PAGE
        for i, name in enumerate(chain.hashes):
            self.names[name] = tuple(tokens[: (i + 1) * PAGE])
        assert self.cache.match(chain, limit) == self.twin.match(tokens, limit)
        mine = self.cache.open(chain, limit, total, 0)
        theirs = self.twin.open(tokens, limit, total)
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            self.running.append((tokens, chain, mine, theirs))
            # The last token is always left to compute.
            assert len(mine.path) * PAGE < len(tokens)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99))
    def store(self, which: int) -> None:
        tokens, chain, mine, theirs = self.running[which % len(self.running)]
        self.cache.store(mine, chain, 0)
        self.twin.store(theirs, tokens)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99))
    def close(self, which: int) -> None:
        _, _, mine, theirs = self.running.pop(which % len(self.running))
        self.cache.close(mine)
        self.twin.close(theirs)

    @precondition(lambda self: not self.running)
    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.twin.last_use.clear()
        self.twin.free = CAPACITY

    @invariant()
    def the_twins_agree_and_nothing_is_lost(self) -> None:
        removed: list[int] = []
        for event in self.cache.take_events():
            match event:
                case AllBlocksCleared():
                    self.resident.clear()
                case BlockStored(hashes=(name,), parent=parent):
                    assert parent is None or parent in self.resident
                    assert name not in self.resident
                    assert self.names[name][-PAGE:] == tuple(event.tokens.tolist())
                    self.resident.add(name)
                case BlockRemoved(hashes=(name,)):
                    removed.append(name)
                    self.resident.remove(name)
        removed_prefixes = [self.names[name] for name in removed]
        assert removed_prefixes == self.twin.removed[::-1]
        self.twin.removed.clear()
        held = {self.names[name] for name in self.resident}
        assert held == set(self.twin.last_use)
        assert self.twin.locked() <= held
        assert all(prefix[:-PAGE] in held or len(prefix) == PAGE for prefix in held)
        reserved = sum(holding.room for _, _, holding, _ in self.running)
        assert self.cache.free_blocks + self.cache.resident_blocks + reserved == CAPACITY
        assert self.cache.free_blocks == self.twin.free
        assert self.cache.locked_blocks == len(self.twin.locked())


TestCache = CacheBesideItsTwin.TestCase
TestCache.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(tokens=st.lists(st.integers(0, 2**31 - 1), max_size=40), cut=st.integers(0, 40))
def test_a_chain_does_not_depend_on_how_it_grew(tokens: list[int], cut: int) -> None:
    grown = chain_of(tokens[:cut])
    grown.extend(np.array(tokens[cut:], dtype=np.int32))
    whole = chain_of(tokens)
    assert grown.hashes == whole.hashes
    assert len(grown) == len(tokens)
    assert len(whole.hashes) == len(tokens) // PAGE


def test_eviction_names_parents_before_children() -> None:
    cache = BlockCache(PAGE, 4)
    chain = chain_of([1, 2, 3, 4, 5, 6])
    holding = cache.open(chain, 2, 3, 0)
    assert holding is not None
    cache.store(holding, chain, 0)
    cache.close(holding)
    cache.take_events()
    assert cache.open(chain_of([7, 8, 9, 10, 11, 12, 13, 14]), 3, 4, 0) is not None
    removed = [event.hashes[0] for event in cache.take_events() if isinstance(event, BlockRemoved)]
    assert [chain.hashes.index(name) for name in removed if isinstance(name, int)] == [0, 1, 2]


def test_repeated_use_does_not_grow_the_book_of_leaves() -> None:
    cache = BlockCache(PAGE, 8)
    chain = chain_of([1, 2, 3, 4])
    for _ in range(500):
        holding = cache.open(chain, 1, 2, 0)
        assert holding is not None
        cache.store(holding, chain, 0)
        cache.close(holding)
    assert len(cache._vram_victims) <= 2 * cache.resident_blocks + 64


def test_least_recently_used_leaves_go_first() -> None:
    cache = BlockCache(PAGE, 3)
    order = [[1, 1], [2, 2], [3, 3]]
    chains = [chain_of([*pair, 0]) for pair in order]
    for chain in [*chains, chains[0]]:
        holding = cache.open(chain, 1, 1, 0)
        assert holding is not None
        cache.store(holding, chain, 0)
        cache.close(holding)
    cache.take_events()
    assert cache.open(chain_of([4, 4, 5, 5]), 1, 2, 0) is not None
    removed = [event.hashes[0] for event in cache.take_events() if isinstance(event, BlockRemoved)]
    assert set(removed) == {chains[1].hashes[0], chains[2].hashes[0]}
    assert all(a != b for a, b in pairwise(removed))
