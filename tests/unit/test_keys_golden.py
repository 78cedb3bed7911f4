"""Golden keys: fleets are upgraded one component at a time, so a key may never change unnoticed.

A failure here means that new components would not match one key of old ones. If the change is wanted, raise
`KEY_VERSION` and compute the vectors again.
"""

import numpy as np
import pytest

from kvcompass.keys import KEY_VERSION, PrefixHasher, namespace, prefix_keys
from kvcompass.plan.model import ModelIdentity

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
BUILTIN = "builtin:kvcompass-bpe"
LONG = [token * 7_919 % 128_256 for token in range(4_096)]

VECTORS = [
    (LLAMA, BUILTIN, "", list(range(16)), 0x6D1DF6716535E36B),
    (LLAMA, BUILTIN, "tenant-a", list(range(16)), 0x178F8CD9A306AA42),
    (LLAMA, BUILTIN, "", [], 0x6BFEEAF1486F3185),
    ("modèle", "tok.json", "sel", [128_000, -1, 2**31 - 1, -(2**31)], 0x66982F1F39B61CDF),
    (LLAMA, BUILTIN, "", LONG, 0x48DC6E65B86B39BD),
]


def test_the_vectors_are_of_this_key_version() -> None:
    assert KEY_VERSION == 1


def test_the_namespace_is_length_prefixed_fields() -> None:
    model = ModelIdentity("modèle", "tok.json", "not part of a key", 16, 4_096)
    assert namespace(model, "sel").hex() == (
        "090000006b76636f6d70617373"  # kvcompass
        "0100000031"  # key version
        "070000006d6f64c3a86c65"  # model id
        "08000000746f6b2e6a736f6e"  # tokenizer
        "0300000073656c"  # salt
    )


@pytest.mark.parametrize(("model", "tokenizer", "salt", "tokens", "key"), VECTORS)
def test_a_key_never_drifts(model: str, tokenizer: str, salt: str, tokens: list[int], key: int) -> None:
    hasher = PrefixHasher(namespace(ModelIdentity(model, tokenizer, "", 16, 8_192), salt))
    hasher.feed(np.array(tokens, dtype=np.int32))
    assert hasher.key() == key


def test_one_pass_gives_the_same_golden_key() -> None:
    space = namespace(ModelIdentity(LLAMA, BUILTIN, "", 16, 8_192), "")
    keys = prefix_keys(space, np.array(LONG, dtype=np.int32), np.array([16, 1_000, 4_096], dtype=np.int32))
    assert int(keys[-1]) == 0x48DC6E65B86B39BD
