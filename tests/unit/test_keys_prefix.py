"""Keys against their naive twin, and the laws a fleet leans on."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.keys import PrefixHasher, namespace, prefix_keys, shard_of
from kvcompass.keys.shards import keys_of
from kvcompass.plan.model import ModelIdentity
from tests.models.keys_naive import naive_key, naive_namespace, naive_shard

TOKENS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60)
LENGTHS = st.lists(st.integers(1, 80), max_size=10, unique=True).map(sorted)
MODEL = ModelIdentity("m", "tokenizer", "template", 16, 4_096)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


@given(TOKENS, LENGTHS, st.binary(max_size=80))
def test_keys_equal_those_of_every_prefix_hashed_alone(
    tokens: list[int], lengths: list[int], space: bytes
) -> None:
    expected = [naive_key(space, tokens[:length]) for length in lengths if length <= len(tokens)]
    keys = prefix_keys(space, array(tokens), array(lengths))
    assert keys.dtype == np.uint64
    assert keys.tolist() == expected


@given(TOKENS, st.lists(st.integers(0, 60), max_size=5).map(sorted))
def test_feeding_in_pieces_changes_no_key(tokens: list[int], cuts: list[int]) -> None:
    hasher = PrefixHasher(b"space")
    for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        hasher.feed(array(tokens[start:end]))
        hasher.key()
    fed = max([len(tokens), *(min(cut, len(tokens)) for cut in cuts)])
    assert hasher.length == fed
    assert hasher.key() == naive_key(b"space", tokens)


@given(TOKENS, TOKENS, TOKENS)
def test_a_copy_and_its_original_part_ways(stem: list[int], left: list[int], right: list[int]) -> None:
    original = PrefixHasher(b"space")
    original.feed(array(stem))
    branch = original.copy()
    original.feed(array(left))
    branch.feed(array(right))
    assert original.key() == naive_key(b"space", stem + left)
    assert branch.key() == naive_key(b"space", stem + right)
    assert branch.length == len(stem) + len(right)


def test_a_strided_array_is_read_as_its_values() -> None:
    tokens = np.arange(40, dtype=np.int32)[::2]
    assert prefix_keys(b"", tokens, array([20])).tolist() == [naive_key(b"", tokens.tolist())]


def test_tokens_of_another_type_are_a_programmers_error() -> None:
    with pytest.raises(AssertionError):
        prefix_keys(b"", np.arange(4), array([2]))


@given(
    st.lists(st.text(max_size=6), min_size=3, max_size=3),
    st.lists(st.text(max_size=6), min_size=3, max_size=3),
)
def test_namespaces_are_equal_only_when_their_fields_are(one: list[str], other: list[str]) -> None:
    def make(fields: list[str]) -> bytes:
        return namespace(ModelIdentity(fields[0], fields[1], "any", 16, 4_096), fields[2])

    assert (make(one) == make(other)) == (one == other)
    assert make(one) == naive_namespace(["kvcompass", "1", *one])


def test_key_version_and_salt_change_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = array([1, 2, 3])
    spaces = [namespace(MODEL, ""), namespace(MODEL, "s")]
    monkeypatch.setattr(sys.modules[namespace.__module__], "KEY_VERSION", 2)
    spaces.append(namespace(MODEL, ""))
    assert len({int(prefix_keys(space, tokens, array([3]))[0]) for space in spaces}) == 3


@given(st.lists(st.integers(0, 2**63 - 1), max_size=20), st.integers(1, 64))
def test_shards_are_equal_parts_of_the_key_space(keys: list[int], shards: int) -> None:
    found = shard_of(np.array(keys, dtype=np.uint64), shards)
    assert found.dtype == np.int32
    assert found.tolist() == [naive_shard(key, shards) for key in keys]


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 65_536])
def test_the_ends_of_the_key_space_belong_to_the_first_and_last_shard(shards: int) -> None:
    ends = np.array([0, 2**63 - 1], dtype=np.uint64)
    assert shard_of(ends, shards).tolist() == [0, shards - 1]


@given(st.integers(1, 65_536), st.data())
def test_the_keys_of_a_shard_are_those_whose_shard_it_is(shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    keys = keys_of(shard, shards)
    assert naive_shard(keys[0], shards) == naive_shard(keys[-1], shards) == shard
    assert keys[0] == 0 or naive_shard(keys[0] - 1, shards) == shard - 1
    assert keys[-1] == 2**63 - 1 or naive_shard(keys[-1] + 1, shards) == shard + 1
