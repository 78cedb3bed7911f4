"""The residency rule, one law a test. Blocks of two tokens, registered lengths 2, 4, 8 and 12."""

import numpy as np
import pytest

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcompass.keys import prefix_keys
from kvcompass.roles.event_intake import BlockSizeMismatch
from kvcompass.roles.holdings import Holdings, RepeatedStores
from kvcompass.tier import Tier
from tests.unit.test_holdings_twin import LENGTHS, NAMESPACE, SHARDS, holdings, stored

TOKENS = [1, 2, 3, 4, 5, 6, 7, 8]
HASHES = [101, 102, 103, 104]


def tiers(agent: Holdings, tokens: list[int] = TOKENS) -> list[Tier]:
    """Tier at each registered length of a prompt."""
    held: dict[int, int] = {}
    for shard in range(SHARDS):
        keys, values = agent.report(shard)
        held |= dict(zip(keys.tolist(), values.tolist(), strict=True))
    wanted = prefix_keys(NAMESPACE, np.array(tokens, dtype=np.int32), np.array(LENGTHS, dtype=np.int32))
    return [Tier(held.get(int(key), 0)) for key in wanted]


@pytest.fixture
def agent() -> Holdings:
    """Holds all of TOKENS in VRAM."""
    agent = holdings()
    agent.apply([stored(HASHES, None, TOKENS, "GPU")])
    assert tiers(agent) == [Tier.VRAM] * 3
    return agent


def test_a_missing_middle_withdraws_what_is_longer_until_it_returns(agent: Holdings) -> None:
    agent.apply([BlockRemoved((HASHES[1],), "GPU")])
    assert tiers(agent) == [Tier.VRAM, Tier.NONE, Tier.NONE]
    assert (agent.blocks, agent.detached) == (3, 2)
    agent.apply([stored([HASHES[1]], HASHES[0], TOKENS[2:4], "GPU")])
    assert tiers(agent) == [Tier.VRAM] * 3


def test_one_block_in_dram_makes_everything_longer_dram(agent: Holdings) -> None:
    agent.apply(
        [stored(HASHES[1:2], HASHES[0], TOKENS[2:4], "CPU_PINNED"), BlockRemoved((HASHES[1],), "GPU")]
    )
    assert tiers(agent) == [Tier.VRAM, Tier.DRAM, Tier.DRAM]
    agent.apply([stored(HASHES[1:2], HASHES[0], TOKENS[2:4], None)])
    assert tiers(agent) == [Tier.VRAM] * 3


def test_a_copy_in_dram_changes_nothing_while_vram_has_it(agent: Holdings) -> None:
    assert agent.apply([stored(HASHES, None, TOKENS, "CPU_PINNED")]) == ()
    assert agent.apply([BlockRemoved(tuple(HASHES), "CPU_PINNED")]) == ()


def test_removals_are_idempotent(agent: Holdings) -> None:
    assert agent.apply([BlockRemoved((999,), "GPU"), BlockRemoved(tuple(HASHES), "CPU_PINNED")]) == ()
    agent.apply([BlockRemoved(tuple(HASHES), "GPU")])
    assert agent.apply([BlockRemoved(tuple(HASHES), "GPU")]) == ()
    assert (agent.blocks, len(agent)) == (0, 0)
    assert agent.tree.unknown_removals == 1 + 4 + 4


def test_a_clear_withdraws_every_tier(agent: Holdings) -> None:
    agent.apply([stored([201], None, [9, 9], "CPU_PINNED")])
    edits = agent.apply([AllBlocksCleared()])
    assert not isinstance(edits, BlockSizeMismatch)
    assert [tier for edit in edits for tier in edit.tiers.values()] == [Tier.NONE] * 4
    assert [agent.digest(shard) for shard in range(SHARDS)] == [0] * SHARDS


def test_a_batch_that_ends_where_it_began_is_no_edit(agent: Holdings) -> None:
    batch = [AllBlocksCleared(), stored(HASHES, None, TOKENS, "GPU")]
    assert agent.apply(batch) == ()


def test_children_before_parents() -> None:
    agent = holdings()
    for i in (3, 2, 1):
        agent.apply([stored([HASHES[i]], HASHES[i - 1], TOKENS[2 * i : 2 * i + 2], "GPU")])
        assert len(agent) == 0
    agent.apply([stored(HASHES[:1], None, TOKENS[:2], "GPU")])
    assert tiers(agent) == [Tier.VRAM] * 3


def test_two_stores_take_two_removals_where_they_are_counted(agent: Holdings) -> None:
    agent.apply([stored(HASHES, None, TOKENS, "GPU")])
    agent.apply([BlockRemoved(tuple(HASHES), "GPU")])
    assert tiers(agent) == [Tier.VRAM] * 3
    agent.apply([BlockRemoved(tuple(HASHES), "GPU")])
    assert tiers(agent) == [Tier.NONE] * 3


def test_a_store_told_again_is_the_same_store_where_it_is_idempotent() -> None:
    agent = holdings(RepeatedStores.IDEMPOTENT)
    agent.apply([stored(HASHES, None, TOKENS, "GPU")])
    assert agent.apply([stored(HASHES, None, TOKENS, "GPU")]) == ()
    agent.apply([BlockRemoved(tuple(HASHES), "GPU")])
    assert tiers(agent) == [Tier.NONE] * 3


def test_equal_tokens_under_two_names_are_one_key(agent: Holdings) -> None:
    assert agent.apply([stored([301, 302], None, TOKENS[:4], "CPU_PINNED")]) == ()
    agent.apply([BlockRemoved(tuple(HASHES), "GPU")])
    assert tiers(agent) == [Tier.DRAM, Tier.DRAM, Tier.NONE]


def test_unknown_media_and_foreign_scopes_are_counted_and_ignored() -> None:
    agent = holdings()
    tokens = np.array(TOKENS, dtype=np.int32)
    scoped = BlockStored(tuple(HASHES), None, tokens, 2, "GPU", scope="another salt")
    assert agent.apply([stored(HASHES, None, TOKENS, "DISK"), scoped]) == ()
    assert (agent.events.unknown_media, agent.events.foreign_scopes, agent.blocks) == (1, 1, 0)


def test_another_block_size_stops_the_batch() -> None:
    agent = holdings()
    event = BlockStored((1,), None, np.array([1], dtype=np.int32), 1, "GPU")
    assert agent.apply([event]) == BlockSizeMismatch(reported=1, known=2)


def test_a_store_of_the_wrong_size_is_malformed() -> None:
    agent = holdings()
    assert agent.apply([stored([1, 2], None, [1, 2, 3], "GPU")]) == ()
    assert agent.events.malformed == 1
