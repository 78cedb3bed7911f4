"""What a block's name says: whose it is, and what is above it, told or not. Blocks of two tokens."""

import numpy as np
import pytest

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlocksCopied, EventsLost
from kvcompass.keys import prefix_keys
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.foreign_blocks import ForeignBlocks
from kvcompass.roles.holdings import Holdings
from kvcompass.tier import Tier
from tests.unit.test_holdings_twin import LENGTHS, NAMESPACE, SHARDS, holdings, stored

TOKENS = [1, 2, 3, 4, 5, 6, 7, 8]
A, B, C, D = HASHES = [101, 102, 103, 104]


def tiers(agent: Holdings, tokens: list[int] = TOKENS) -> list[Tier]:
    """At lengths 2, 4 and 8."""
    held: dict[int, int] = {}
    for shard in range(SHARDS):
        keys, values = agent.report(shard)
        held |= dict(zip(keys.tolist(), values.tolist(), strict=True))
    wanted = prefix_keys(NAMESPACE, np.array(tokens, dtype=np.int32), np.array(LENGTHS, dtype=np.int32))
    return [Tier(held.get(int(key), 0)) for key in wanted]


VRAM, DRAM, NONE = [Tier.VRAM] * 3, [Tier.DRAM] * 3, [Tier.NONE] * 3


@pytest.fixture
def agent() -> Holdings:
    """Holds all of TOKENS in VRAM."""
    agent = holdings()
    agent.apply([stored(HASHES, None, TOKENS, "GPU")])
    assert tiers(agent) == VRAM
    return agent


def test_a_copy_by_name_is_a_copy(agent: Holdings) -> None:
    agent.apply([BlocksCopied((A, B, C, D), "CPU"), BlockRemoved((A, B, C, D), "GPU")])
    assert tiers(agent) == DRAM
    agent.apply([BlockRemoved((B,), "CPU")])
    assert tiers(agent) == [Tier.DRAM, Tier.NONE, Tier.NONE]


def test_a_copy_of_a_block_that_is_not_there_is_counted(agent: Holdings) -> None:
    assert agent.apply([BlocksCopied((999, A, 998), "CPU")]) == ()
    assert (agent.tree.unknown_copies, agent.blocks, agent.left_out) == (2, 4, 2)
    assert agent.apply([BlockRemoved((A,), "GPU")]) != ()
    assert tiers(agent) == [Tier.DRAM] * 3


def test_a_copy_in_a_medium_that_is_no_tier_is_left(agent: Holdings) -> None:
    agent.apply([BlocksCopied((A,), "STORAGE"), BlockRemoved((A,), "GPU")])
    assert tiers(agent) == NONE
    assert agent.events.unknown_media == 1


def test_a_known_block_may_be_told_without_its_parent(agent: Holdings) -> None:
    agent.apply([stored([C], None, TOKENS[4:6], "CPU"), BlockRemoved((C,), "GPU")])
    assert tiers(agent) == [Tier.VRAM, Tier.VRAM, Tier.DRAM]
    assert agent.tree.conflicting_stores == 0


def test_a_beginning_that_turns_out_to_be_a_middle_is_one() -> None:
    agent = holdings()
    agent.apply([stored([C, D], None, TOKENS[4:], "GPU")])
    assert tiers(agent, TOKENS[4:])[:2] == [Tier.VRAM] * 2
    agent.apply([stored([C], B, TOKENS[4:6], "CPU")])
    assert (len(agent), agent.detached, agent.tree.late_parents) == (0, 2, 1)
    agent.apply([stored([A, B], None, TOKENS[:4], "GPU")])
    assert tiers(agent) == VRAM
    assert tiers(agent, TOKENS[4:])[:2] == [Tier.NONE] * 2


def test_a_parent_that_is_told_late_may_be_known_already() -> None:
    agent = holdings()
    agent.apply([stored([A, B], None, TOKENS[:4], "GPU"), stored([C, D], None, TOKENS[4:], "GPU")])
    assert tiers(agent) == [Tier.VRAM, Tier.VRAM, Tier.NONE]
    agent.apply([stored([C], B, TOKENS[4:6], "GPU")])
    assert tiers(agent) == VRAM


def test_no_block_is_put_below_itself(agent: Holdings) -> None:
    assert agent.apply([stored([A], D, TOKENS[:2], "GPU"), stored([A], A, TOKENS[:2], "GPU")]) == ()
    assert (agent.tree.conflicting_stores, agent.tree.late_parents) == (2, 0)
    assert tiers(agent) == VRAM


@pytest.mark.parametrize(
    "store",
    [stored([B], A, [9, 9], "CPU"), stored([B], C, TOKENS[2:4], "CPU"), stored([C], A, [5, 6], "CPU")],
)
def test_other_tokens_or_another_parent_are_a_conflict(agent: Holdings, store: object) -> None:
    assert agent.apply([store]) == ()  # type: ignore[list-item]
    assert agent.tree.conflicting_stores == 1
    agent.apply([BlockRemoved((A, B, C, D), "GPU")])
    assert agent.blocks == 0


def test_nothing_of_another_scope_is_credited_or_kept() -> None:
    """vLLM tells the salt of a first block alone; blocks below are known by their parents."""
    agent = holdings()
    agent.apply(
        [
            stored([A, B], None, TOKENS[:4], "GPU", scope="salt"),
            stored([C], B, TOKENS[4:6], "GPU"),
            BlocksCopied((A, C), "CPU"),
            stored([D], C, TOKENS[6:], "CPU"),
            BlockRemoved((A, B, C, D), "GPU"),
        ]
    )
    assert (agent.blocks, len(agent), agent.left_out) == (0, 0, 0)
    assert agent.events.foreign_scopes == 4
    assert agent.tree.unknown_removals == agent.tree.unknown_copies == 0


@pytest.mark.parametrize("scope", ["salt", "adapter:tuned\0", "\0"])
def test_every_scope_is_another(scope: str) -> None:
    """Requests come to a worker without a salt and without an adapter, whatever its sharing group's salt."""
    agent = holdings()
    agent.apply([stored(HASHES, None, TOKENS, "GPU", scope)])
    agent.apply([stored([201, 202], None, TOKENS[:4], "GPU")])
    assert tiers(agent) == [Tier.VRAM, Tier.VRAM, Tier.NONE]


def test_copies_told_under_a_scope_are_its_own(agent: Holdings) -> None:
    agent.apply([BlocksCopied((A, B, C, D), "CPU", scope="salt"), BlockRemoved((A,), "GPU")])
    assert tiers(agent) == NONE


def test_a_name_of_both_is_removed_here_too(agent: Holdings) -> None:
    """Better too little than too much: it is not told whose block left."""
    agent.apply([stored([A], None, TOKENS[:2], "GPU", scope="salt"), BlockRemoved((A,), "GPU")])
    assert tiers(agent) == NONE


def test_names_of_another_scope_outlive_what_is_lost_and_end_with_a_clear() -> None:
    agent = holdings()
    agent.apply([stored([A], None, TOKENS[:2], "GPU", scope="salt"), EventsLost(removals=True)])
    agent.apply([stored([B], A, TOKENS[2:4], "GPU")])
    assert agent.blocks == 0
    agent.apply([AllBlocksCleared(), stored([B], A, TOKENS[2:4], "GPU")])
    assert (agent.blocks, agent.detached) == (1, 1)


def test_names_of_other_scopes_are_bounded_and_never_credited() -> None:
    agent = holdings(limits=TreeLimits(detached=10))
    for number in range(100):
        agent.apply([stored([number], None, [number, 1], "GPU", scope="salt")])
        agent.apply([stored([1_000 + number], number, [number, 2], "GPU")])
    agent.apply([stored([2_000 + number], number, [number, 3], "GPU") for number in range(100)])
    assert len(agent) == 0
    assert agent.blocks == agent.detached <= 10


def test_the_latest_names_are_kept() -> None:
    foreign = ForeignBlocks(3)
    foreign.note([1, 2])
    foreign.note([3, 4])
    assert [name in foreign for name in (1, 2, 3, 4, None)] == [False, True, True, True, False]
    assert len(foreign) == 3


def test_blocks_that_are_each_others_parents_do_not_fill_the_tree() -> None:
    agent = holdings(limits=TreeLimits(blocks=40, detached=10))
    for name in range(1_000, 1_060, 2):
        agent.apply([stored([name], name + 1, [1, 2], "GPU"), stored([name + 1], name, [3, 4], "GPU")])
    assert agent.blocks == agent.detached <= 10
    assert agent.tree.dropped_blocks + agent.blocks == 60
    agent.apply([stored(HASHES, None, TOKENS, "GPU"), stored([555], 556, [1, 2], "GPU")])
    for name in range(3_000, 3_020, 2):
        agent.apply([stored([name], name + 1, [1, 2], "GPU"), stored([name + 1], name, [3, 4], "GPU")])
    assert tiers(agent) == VRAM
    agent.apply([BlockRemoved((A,), "GPU"), stored([A], None, TOKENS[:2], "GPU")])
    assert tiers(agent) == VRAM
    assert agent.tree.refused_blocks == 0


def test_a_spelled_copy_of_another_scopes_blocks_is_not_credited_either() -> None:
    """vLLM's copies on the host are told without the salt of their blocks, under the same names."""
    agent = holdings()
    agent.apply([stored([A], None, TOKENS[:2], "GPU", "salt"), stored([B], A, TOKENS[2:4], "GPU")])
    assert agent.apply([stored([A], None, TOKENS[:2], "CPU"), stored([B], A, TOKENS[2:4], "CPU")]) == ()
    assert (agent.blocks, agent.events.foreign_scopes, agent.left_out) == (0, 4, 0)
    assert agent.apply([stored([C], None, TOKENS[:2], "CPU")]) == (), "whose block it is was not heard"
    assert agent.left_out == 1


def test_a_name_of_another_scope_that_was_told_again_is_not_the_next_to_be_dropped() -> None:
    foreign = ForeignBlocks(3)
    foreign.note([1, 2, 3])
    foreign.note([1])
    foreign.note([4])
    assert [name for name in (1, 2, 3, 4) if name in foreign] == [1, 3, 4]


def test_copies_found_together_are_credited_only_where_a_length_cannot_end_among_them(
    agent: Holdings,
) -> None:
    agent.apply([stored(HASHES, None, TOKENS, "CPU"), BlockRemoved((D, C, B), "GPU")])
    assert tiers(agent) == [Tier.VRAM, Tier.NONE, Tier.NONE]
    assert (agent.events.coarse_copies, agent.left_out) == (1, 0)


def test_a_copy_of_which_a_part_is_anothers_is_found_by_nobody(agent: Holdings) -> None:
    agent.apply(
        [stored([999], A, [9, 9], "GPU", "image"), stored([A, 999], None, [*TOKENS[:2], 9, 9], "CPU")]
    )
    agent.apply([BlockRemoved((A,), "GPU")])
    assert tiers(agent) == NONE


def test_a_spelled_copy_is_one(agent: Holdings) -> None:
    agent.apply([stored([A], None, TOKENS[:2], "CPU"), stored([B], A, TOKENS[2:4], "CPU")])
    agent.apply([BlockRemoved((A, B, C, D), "GPU")])
    assert tiers(agent) == [Tier.DRAM, Tier.DRAM, Tier.NONE]


def test_blocks_leave_from_a_prompts_end() -> None:
    agent = holdings()
    agent.apply([stored(HASHES, None, TOKENS, "GPU"), stored(HASHES, None, TOKENS, "GPU")])
    assert agent.cached_blocks == 8
    agent.apply([BlockRemoved((D, C, B), "GPU")])
    assert (tiers(agent), agent.cached_blocks) == (VRAM, 5)
    agent.apply([BlockRemoved((D, C), "GPU")])
    assert (tiers(agent), agent.cached_blocks) == ([Tier.VRAM, Tier.VRAM, Tier.NONE], 3)
    agent.apply([AllBlocksCleared()])
    assert agent.cached_blocks == 0
