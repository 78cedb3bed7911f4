"""A worker that holds more than it may registers all prefixes up to some length and none above."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.holdings import Holdings, RepeatedStores
from kvcompass.roles.length_cap import LengthCap
from tests.unit.test_holdings_twin import BLOCK, LENGTHS, NAMESPACE, SHARDS, sensible_events


def holdings(keys_max: int) -> Holdings:
    return Holdings(
        NAMESPACE,
        block_size=BLOCK,
        lengths=np.array(LENGTHS, dtype=np.int32),
        shards=SHARDS,
        repeated_stores=RepeatedStores.COUNTED,
        limits=TreeLimits(),
        keys_max=keys_max,
    )


@settings(max_examples=60, deadline=None)
@given(keys_max=st.integers(0, 12), batches=st.lists(sensible_events(), max_size=8))
def test_what_is_registered_is_all_up_to_a_length_within_the_bound(keys_max: int, batches: list) -> None:
    bounded, free = holdings(keys_max), holdings(1 << 62)
    told: dict[int, int] = {}
    for events in batches:
        for edits in bounded.apply(events):
            for key, tier in edits.tiers.items():
                assert told.get(key, 0) != tier
                if tier:
                    told[key] = tier
                else:
                    told.pop(key)
        free.apply(events)
        held = {
            key: tier
            for shard in range(SHARDS)
            for key, tier in zip(*(array.tolist() for array in free.report(shard)), strict=True)
        }
        length = bounded.registered_length
        assert told == {key: tier for key, tier in held.items() if free._held[key] >> 2 <= length}
        assert len(bounded) == len(told) <= keys_max
        assert bounded.unregistered == len(held) - len(told)
        for shard in range(SHARDS):
            keys, tiers = bounded.report(shard)
            assert bounded.count(shard) == keys.size
            assert bounded.digest(shard) == holdings_digest(keys, tiers)
            assert all(told[key] == tier for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True))


def test_the_cap_falls_at_the_bound_and_rises_below_it() -> None:
    cap = LengthCap([128, 256, 512], 100)
    assert cap.length == 512
    for held, length in (
        ({128: 40, 256: 30, 512: 30}, 512),
        ({128: 40, 256: 30, 512: 31}, 256),
        ({128: 40, 256: 30, 512: 25}, 256),  # 95 would fit, and swing
        ({128: 40, 256: 30, 512: 20}, 512),
        ({128: 101}, 0),
        ({128: 91}, 0),
        ({128: 90}, 512),
    ):
        cap.update(Counter(held))
        assert cap.length == length, held
