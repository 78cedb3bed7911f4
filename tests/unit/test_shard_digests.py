"""What is told of a worker's shards is what it has registered, however seldom it is asked for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.shard_digest import _PENDING, ShardDigests

SHARDS = 2
CHANGES = st.lists(
    st.tuples(st.integers(0, SHARDS - 1), st.integers(2**63 - 9, 2**63 - 1), st.integers(0, 2)), max_size=40
)


def told(digests: ShardDigests) -> list[tuple[int, int]]:
    return [(digests.digest(shard), digests.count(shard)) for shard in range(SHARDS)]


def held_in(registered: list[dict[int, int]]) -> list[tuple[int, int]]:
    return [
        (holdings_digest(np.array([*held], np.uint64), np.array([*held.values()], np.uint8)), len(held))
        for held in registered
    ]


@given(st.lists(CHANGES, max_size=4))
def test_digest_and_count_are_those_of_what_is_registered(batches: list[list[tuple[int, int, int]]]) -> None:
    digests = ShardDigests(SHARDS)
    registered: list[dict[int, int]] = [{} for _ in range(SHARDS)]
    for batch in batches:
        for shard, key, tier in batch:
            digests.change(shard, key, registered[shard].pop(key, 0), tier)
            if tier:
                registered[shard][key] = tier
        assert told(digests) == held_in(registered)
        assert digests.total == sum(map(len, registered))


def test_what_waits_has_a_bound() -> None:
    digests, most = ShardDigests(1), 0
    held = dict.fromkeys(range(2 * _PENDING + 1), 1)
    for key, tier in held.items():
        digests.change(0, key, 0, tier)
        most = max(most, len(digests._pairs[0]))
    assert most < _PENDING
    assert (digests.digest(0), digests.count(0)) == held_in([held])[0]
