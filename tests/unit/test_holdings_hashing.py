"""No token is hashed twice without need: a long prefix is never hashed again from its start."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from kvcompass.engine_events import BlockRemoved, BlockStored
from kvcompass.keys import PrefixHasher, namespace, prefix_keys
from kvcompass.levels import registered_lengths
from kvcompass.roles import holdings as holdings_module
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.holdings import Holdings, RepeatedStores
from tests.models.agent_fleets import agent_plan

BLOCK = 16
PLAN = agent_plan(block_size=BLOCK, quantum=128, context_length=32_768)
LENGTHS = registered_lengths(PLAN)
NAMESPACE = namespace(PLAN.model, "")
GAP = 1_024 + 2 * int(np.diff(LENGTHS, prepend=0).max())
"""Tokens between two running hashes that are kept, at most: 1,024 and what is missing to a rung."""


class CountingHasher(PrefixHasher):
    """Counts the tokens that it and all its copies are fed."""

    __slots__ = ()
    tokens = 0

    def feed_bytes(self, tokens: bytes | memoryview) -> None:
        type(self).tokens += len(tokens) // 4
        super().feed_bytes(tokens)


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(holdings_module, "PrefixHasher", CountingHasher)
    monkeypatch.setattr(CountingHasher, "tokens", 0)
    yield


def empty() -> Holdings:
    return Holdings(
        NAMESPACE,
        block_size=BLOCK,
        lengths=LENGTHS,
        shards=1,
        repeated_stores=RepeatedStores.COUNTED,
        limits=TreeLimits(),
    )


class Prompt:
    """Tokens, and the names of their blocks, which depend on all tokens before."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.names: list[int] = []
        for start in range(0, len(tokens), BLOCK):
            above = self.names[-1] if self.names else 0
            self.names.append(hash((above, *tokens[start : start + BLOCK])))

    def told(self, start: int = 0, end: int | None = None, medium: str = "GPU") -> BlockStored:
        """Tokens `start` to `end`."""
        end = len(self.tokens) if end is None else end
        first = start // BLOCK
        spelled = np.array(self.tokens[start:end], dtype=np.int32)
        parent = self.names[first - 1] if first else None
        return BlockStored(tuple(self.names[first : end // BLOCK]), parent, spelled, BLOCK, medium)


def tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(50_000), k=count)


def hashed_since(before: int) -> int:
    return CountingHasher.tokens - before


def check(agent: Holdings, *prompts: Prompt) -> None:
    """It holds what these prompts have, so what is not hashed again is right."""
    keys = {
        int(key)
        for prompt in prompts
        for key in prefix_keys(NAMESPACE, np.array(prompt.tokens, dtype=np.int32), LENGTHS)
    }
    assert set(agent.report(0)[0].tolist()) == keys


def test_a_prompt_that_grows_block_by_block_is_hashed_once() -> None:
    agent, prompt = empty(), Prompt(tokens(16_384, 1))
    for start in range(0, 16_384, BLOCK):
        agent.apply([prompt.told(start, start + BLOCK)])
    check(agent, prompt)
    assert CountingHasher.tokens <= 16_384


def test_a_prompt_told_from_its_end_is_hashed_once() -> None:
    agent, prompt = empty(), Prompt(tokens(8_192, 2))
    for start in range(8_192 - BLOCK, -1, -BLOCK):
        agent.apply([prompt.told(start, start + BLOCK)])
    check(agent, prompt)
    assert CountingHasher.tokens <= 8_192


@pytest.mark.parametrize("shared", [4_096, 4_096 + 80, 16_384 + 496])
def test_prompts_that_part_at_one_place_hash_their_own_tokens(shared: int) -> None:
    """A few tokens above are hashed anew, once, when it turns out that prompts part there."""
    agent, beginning, own, many = empty(), tokens(shared, 3), 2_048, 40
    prompts = [Prompt(beginning + tokens(own, 100 + number)) for number in range(many)]
    agent.apply([prompts[0].told()])
    for prompt in prompts[1:]:
        agent.apply([prompt.told(shared)])
    check(agent, *prompts)
    assert CountingHasher.tokens <= shared + many * own + 2 * GAP


def test_prompts_that_part_anywhere_hash_little_above_that() -> None:
    agent, long, own, many = empty(), tokens(16_384, 4), 2_048, 60
    prompts = [Prompt(long)]
    agent.apply([prompts[0].told()])
    for number in range(many):
        parts = BLOCK * random.Random(number).randrange(1, len(long) // BLOCK)
        prompts.append(Prompt(long[:parts] + tokens(own, 200 + number)))
        agent.apply([prompts[-1].told(parts)])
    check(agent, *prompts)
    assert CountingHasher.tokens <= len(long) + many * (own + GAP)


def test_what_leaves_at_the_end_and_comes_back_is_hashed_with_little_above() -> None:
    agent, prompt = empty(), Prompt(tokens(16_384, 5))
    agent.apply([prompt.told()])
    for _ in range(20):
        before = CountingHasher.tokens
        last = prompt.told(16_384 - 1_024)
        agent.apply([BlockRemoved(last.hashes, "GPU")])
        agent.apply([last])
        assert CountingHasher.tokens - before <= 1_024 + GAP
    check(agent, prompt)


def test_a_move_between_tiers_hashes_nothing() -> None:
    agent, prompt = empty(), Prompt(tokens(4_096, 6))
    agent.apply([prompt.told()])
    before = CountingHasher.tokens
    agent.apply([prompt.told(medium="CPU_PINNED"), BlockRemoved(tuple(prompt.names), "GPU")])
    agent.apply([prompt.told()])
    assert CountingHasher.tokens == before
    check(agent, prompt)
