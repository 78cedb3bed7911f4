"""The holdings digest against plain integers, and its laws."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.keys.digest import holdings_digest, pair_words

MASK = 2**64 - 1
HOLDINGS = st.dictionaries(st.integers(0, 2**63 - 1), st.integers(1, 2), max_size=30)


def naive(held: dict[int, int]) -> int:
    digest = 0
    for key, tier in held.items():
        word = (key * 3 + tier + 0x9E3779B97F4A7C15) & MASK
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        digest ^= word ^ (word >> 31)
    return digest


def digest(held: dict[int, int]) -> int:
    keys = np.array(list(held), dtype=np.uint64)
    return holdings_digest(keys, np.array(list(held.values()), dtype=np.uint8))


@given(HOLDINGS)
def test_equals_the_twin(held: dict[int, int]) -> None:
    assert digest(held) == naive(held)


@given(HOLDINGS, HOLDINGS)
def test_disjoint_holdings_add_by_xor_in_any_order(one: dict[int, int], other: dict[int, int]) -> None:
    other = {key: tier for key, tier in other.items() if key not in one}
    assert digest(one | other) == digest(other | one) == digest(one) ^ digest(other)


@given(st.integers(0, 2**63 - 1))
def test_the_tier_counts(key: int) -> None:
    assert len({digest({}), digest({key: 1}), digest({key: 2})}) == 3


@given(st.integers(0, 2**63 - 1), st.integers(1, 2))
def test_a_pair_by_itself_is_the_pair_of_an_array(key: int, tier: int) -> None:
    assert pair_words(key, tier) == naive({key: tier}) == digest({key: tier})
