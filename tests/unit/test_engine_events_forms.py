"""Bytes of real encoders, version by version, and what they say (`tests/fixtures/golden/capture_*.py`)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineNews,
    EventsLost,
)
from services.worker_agent.event_decoder import EventDecoder

GOLDEN = Path(__file__).parent.parent / "fixtures" / "golden"
A = list(range(1, 9))
B = list(range(101, 109))
KEYED = "\0"


def captured(name: str) -> dict[str, dict[str, bytes]]:
    """Payloads by version and step, in order."""
    versions: dict[str, dict[str, bytes]] = {}
    for line in json.loads((GOLDEN / name).read_text("utf-8")):
        versions.setdefault(line["version"], {})[line["step"]] = bytes.fromhex(line["payload_hex"])
    return versions


SGLANG, VLLM = captured("sglang_forms.json"), captured("vllm_forms.json")


def plain(events: list[EngineNews]) -> list[tuple[Any, ...]]:
    """Events as they compare."""
    rows: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case BlockStored():
                assert event.block_size == 4
                tokens = event.tokens.tolist()
                rows.append(("stored", event.hashes, event.parent, tokens, event.medium, event.scope))
            case BlocksCopied():
                rows.append(("copied", event.hashes, event.medium, event.scope))
            case BlockRemoved():
                rows.append(("removed", event.hashes, event.medium))
            case AllBlocksCleared():
                rows.append(("cleared",))
            case EventsLost():
                rows.append(("lost", event.removals))
    return rows


def sglang_names(tokens: list[int], *, seed: bytes = b"", pairs: bool = False) -> tuple[int, ...]:
    """As SGLang names pages of 4: SHA-256 of the page before and the tokens, the first 64 bits, signed."""
    names, digest = [], seed
    for start in range(0, len(tokens) - pairs, 4):
        spelled = [tokens[i : i + 1 + pairs] for i in range(start, start + 4)]
        data = b"".join(token.to_bytes(4, "little") for one in spelled for token in one)
        digest = hashlib.sha256(digest + data).digest()
        names.append(int.from_bytes(digest[:8], "big", signed=True))
    return tuple(names)


@pytest.mark.parametrize("version", SGLANG)
def test_sglang(version: str) -> None:
    decoder, steps = EventDecoder(), SGLANG[version]
    a0, a1, a2 = sglang_names([*A, 9, 10, 11, 12])
    e0, e1, e2 = sglang_names([*A, 9, 10, 11, 12, 13], pairs=True)
    salted = sglang_names(A, seed=hashlib.sha256(b"sglang-cache-salt-v1\0tenant1").digest())
    told = {step: plain(decoder.decode(payload)) for step, payload in steps.items()}
    assert told["A"] == [("stored", (a0, a1), None, A, "GPU", "")]
    assert told["extend A"] == [("stored", (a2,), a1, [9, 10, 11, 12], "GPU", "")]
    assert told["A with an extra key"] == told["A"], "it is not told"
    if version != "0.5.10":
        assert told["A salted"] == [("stored", salted, None, A, "GPU", "tenant1")]
    removed = [a2, a0, a1, a0, a1, *(salted if version != "0.5.10" else ())]
    (gone,) = told["evict all"]
    assert (gone[0], sorted(gone[1]), gone[2]) == ("removed", sorted(removed), "GPU")
    assert told["flush"] == [("cleared",)]
    assert told["EAGLE: A and one token more"] == [("stored", (e0, e1), None, A, "GPU", "")]
    assert told["EAGLE: extend A"] == [("stored", (e2,), e1, [9, 10, 11, 12], "GPU", "")]
    if version == "0.5.23":
        ((kind, names, *more),) = told["A with an adapter"]
        assert (kind, more) == ("stored", [None, A, "GPU", "adapter:tuned\0"])
        assert not set(names) & {a0, a1}
        unsalted, tenant = told["A, then salted, dynamo format"]
        assert unsalted == told["A"][0]
        assert tenant[2:] == (None, A, "GPU", "tenant1")
        assert not set(tenant[1]) & {a0, a1, *salted}
    assert set(vars_of(decoder).values()) == {0}


def vllm_name(text: str) -> int:
    """As vLLM shortens the SHA-256 that names a block."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[-8:], "big")


@pytest.mark.parametrize("version", VLLM)
def test_vllm(version: str) -> None:
    decoder = EventDecoder()
    told = {step: plain(decoder.decode(payload)) for step, payload in VLLM[version].items()}
    a0, a1, a2, s0, s1, s2, i1, i2 = map(vllm_name, ("a0", "a1", "a2", "s0", "s1", "s2", "i1", "i2"))
    groups = told.pop("a window's group stores and removes", None)
    news = told.pop("what else 0.33 tells", None)
    assert told == {
        "clear": [("cleared",)],
        "A": [("stored", (a0, a1), None, A, "GPU", "")],
        "extend A": [("stored", (a2,), a1, [9, 10, 11, 12], "GPU", "")],
        "A salted, then extended": [
            ("stored", (s0, s1), None, A, "GPU", KEYED),
            ("stored", (s2,), s1, [9, 10, 11, 12], "GPU", ""),
        ],
        "a prompt with an image": [
            ("stored", (a0,), None, A[:4], "GPU", ""),
            ("stored", (i1, i2), a0, [*A[4:], 9, 9, 9, 9], "GPU", KEYED),
        ],
        "an adapter": [("stored", (vllm_name("l0"),), None, A[:4], "GPU", "adapter:3\0")],
        "names of bytes": [("stored", (vllm_name("b0"), vllm_name("b1")), None, B, "GPU", "")],
        "a copy on the host": [("copied", (a0,), "CPU", "")],
        "the first of A leaves the GPU": [("removed", (a0,), "GPU")],
        "on disk": [("copied", (a0,), "STORAGE", "")],
        "the copy leaves": [("removed", (a0,), "CPU")],
    }
    stored = ("stored", (a0,), None, A[:4], "GPU", "")
    expected_groups = {
        "0.19.1": None,  # has no groups
        "0.20.0": [stored, stored, ("removed", (a0,), "GPU")],  # has not told which of them is a window's
    }
    assert groups == expected_groups.get(version, [stored])
    e0 = (vllm_name("e0"),)
    if version == "0.33.0":
        assert news == [
            ("stored", e0, None, [21, 22, 23, 24], "GPU", ""),
            ("stored", e0, None, [21, 22, 23, 24], "CPU elsewhere", ""),
            ("stored", e0, None, [21, 22, 23, 24], "CPU elsewhere", ""),
        ]
    else:
        assert news is None
    other = 2 if groups == [stored] else 0
    assert {name: count for name, count in vars_of(decoder).items() if count} == (
        {"other_groups": other} if other else {}
    )


def vars_of(decoder: EventDecoder) -> dict[str, int]:
    """The decoder's counters by name."""
    counters = decoder.counters
    return {name: getattr(counters, name) for name in counters.__slots__}
