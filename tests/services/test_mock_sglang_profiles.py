"""The double's bytes are those of the engine it plays, and mean the same to an agent."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent, EngineNews
from kvcompass.engine_model import TierEvents
from kvcompass.engine_model.block_cache import BlockCache
from kvcompass.engine_model.token_chain import TokenChain
from services.mock_sglang.profiles import PROFILES, Profile, ProfileName
from services.mock_sglang.profiles.map_events import join_scope, split_scope
from services.worker_agent.event_decoder import EventDecoder

GOLDEN = Path(__file__).parent.parent / "fixtures" / "golden"
A = list(range(1, 9))
B = list(range(101, 109))
VERSIONS = list(PROFILES)


class Engine:
    """A block cache whose events leave as a version sends them."""

    def __init__(self, version: ProfileName, dram_blocks: int = 0) -> None:
        self.profile = PROFILES[version]
        self.report = self.profile.event_report()
        self.cache = BlockCache(4, 100, dram_blocks, tier_events=self.profile.tier_events)

    def insert(self, tokens: list[int], salt: str = "") -> None:
        chain = TokenChain(np.array(tokens, dtype=np.int32), 4, salt)
        holding = self.cache.open(chain, len(tokens) // 4, len(tokens) // 4, 0)
        assert holding is not None
        self.cache.store(holding, chain, 0)
        self.cache.close(holding)

    def payload(self, timestamp_s: float) -> bytes:
        told = self.report.told(self.cache.take_events())
        return self.profile.encode_batch(told, timestamp_s, 0)


def golden(name: str, policy: str | None = None) -> dict[str, bytes]:
    """Recorded payloads by step."""
    steps: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text("utf-8"))
    return {
        step["step"]: bytes.fromhex(step["payload_hex"])
        for step in steps
        if step["payload_hex"] is not None and step.get("policy") == policy
    }


def test_sglang_0_5_23_in_map_form_to_the_byte() -> None:
    recorded = golden("radix_0.5.23.json")
    engine = Engine("0.5.23")
    assert engine.payload(1.0) == recorded["reset"]
    engine.insert(A)
    assert engine.payload(2.0) == recorded["insert A"]
    engine.insert([*A, 20, 21, 22, 23])
    assert engine.payload(3.0) == recorded["extend A"]
    engine.insert([1, 2, 3, 4, 50, 51, 52, 53])
    assert engine.payload(4.0) == recorded["branch off A"]
    engine.insert(A, salt="tenant1")
    assert engine.payload(5.0) == recorded["insert A salted"]
    engine.insert([*A, 20, 21, 22, 23], salt="tenant1")
    assert engine.payload(6.0) == recorded["extend A salted"]
    engine.cache.clear()
    assert engine.payload(9.0) == recorded["flush"]


def test_hicache_0_5_11_to_the_byte() -> None:
    recorded = golden("hiradix_0.5.11.json", "write_through")
    engine = Engine("0.5.11", dram_blocks=100)
    assert engine.payload(1.0) == recorded["reset"]
    engine.insert(B)
    assert engine.payload(1.0) == recorded["insert+ack B"]


def test_hicache_0_5_10_tells_of_no_host_tier() -> None:
    recorded = golden("hiradix_0.5.10.json", "write_through")
    engine = Engine("0.5.10", dram_blocks=100)
    engine.payload(1.0)
    engine.insert(A)
    assert engine.payload(1.0) == recorded["insert A"]


def test_only_0_5_10_is_silent_about_tiers_and_only_0_5_23_about_nothing() -> None:
    assert {version: profile.tier_events for version, profile in PROFILES.items()} == {
        "0.5.10": TierEvents.UNTOLD,
        "0.5.11": TierEvents.NOT_RECOMPUTED,
        "0.5.23": TierEvents.ALL,
    }


@pytest.mark.parametrize("version", ["0.5.10", "0.5.11"])
def test_two_salts_share_names_before_0_5_20(version: ProfileName) -> None:
    engine, decoder = Engine(version), EventDecoder()
    engine.insert(A)
    engine.insert(A, salt="one")
    engine.insert([*A, 9, 9, 9, 9], salt="one")
    plain = TokenChain(np.array([*A, 9, 9, 9, 9], dtype=np.int32), 4).hashes
    _, *stored = decoder.decode(engine.payload(1.0))
    assert all(isinstance(event, BlockStored) and event.scope == "" for event in stored)
    rows = [row for row in flat(stored, scopes=True) if row[0] == "stored"]
    assert [row[1] for row in rows] == [*plain[:2], *plain[:2], plain[2]]
    assert [row[2] for row in rows] == [None, plain[0], None, plain[0], plain[1]]
    engine.insert(list(range(1_000, 1_400)))
    removed = [e for e in decoder.decode(engine.payload(1.0)) if isinstance(e, BlockRemoved)]
    assert sorted(name for event in removed for name in event.hashes) == sorted([*plain[:2], *plain])


def test_a_shared_name_lasts_until_the_last_tier_has_let_go() -> None:
    report, tokens = PROFILES["0.5.11"].event_report(), np.arange(4, dtype=np.int32)
    (plain,) = TokenChain(tokens, 4).hashes
    stores = [BlockStored((77,), None, tokens, 4, medium, scope="s") for medium in ("GPU", "CPU_PINNED")]
    removals = [BlockRemoved((77,), medium) for medium in ("GPU", "CPU_PINNED")]
    told = report.told([*stores, *removals])
    assert [event.hashes for event in told if not isinstance(event, AllBlocksCleared)] == [(plain,)] * 4


names = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 1)
media = st.sampled_from(["GPU", "CPU_PINNED", None])
salts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@st.composite
def stores(draw: st.DrawFn) -> BlockStored:
    size = draw(st.integers(1, 4))
    tokens = draw(st.lists(st.integers(0, 2**31 - 1), min_size=size, max_size=size))
    return BlockStored(
        hashes=(draw(names),),
        parent=draw(st.none() | names),
        tokens=np.array(tokens, dtype=np.int32),
        block_size=size,
        medium=draw(media),
        scope=draw(st.builds(join_scope, salts, salts)),
    )


removals = st.builds(BlockRemoved, hashes=st.tuples(names), medium=media)
batches = st.lists(stores() | removals | st.just(AllBlocksCleared()), max_size=12)


def flat(events: list[EngineNews], *, scopes: bool) -> list[tuple[Any, ...]]:
    """One entry a block, however blocks are joined into events."""
    rows: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, BlockStored):
            parent = event.parent
            for i, name in enumerate(event.hashes):
                page = event.tokens[i * event.block_size : (i + 1) * event.block_size].tolist()
                scope = event.scope if scopes else ""
                rows.append(("stored", name, parent, page, event.block_size, event.medium, scope))
                parent = name
        elif isinstance(event, BlockRemoved):
            rows += [("removed", name, event.medium) for name in event.hashes]
        else:
            rows.append((type(event).__name__,))
    return rows


@given(batches, st.integers(0, 7))
@pytest.mark.parametrize("version", VERSIONS)
def test_an_agent_reads_what_was_written(version: ProfileName, events: list[EngineEvent], rank: int) -> None:
    profile: Profile = PROFILES[version]
    decoder = EventDecoder()
    payload = profile.encode_batch(events, 1.5, rank)
    salted = version == "0.5.23"
    assert flat(decoder.decode(payload), scopes=True) == flat(list(events), scopes=salted)
    assert decoder.counters.malformed_events == decoder.counters.unknown_events == 0
    timestamp, raw, said_rank = msgspec.msgpack.decode(payload)
    assert (timestamp, said_rank) == (1.5, rank)
    assert salted or len(raw) == len(events)


@given(salts, salts)
def test_a_scope_comes_apart_as_it_was_joined(salt: str, adapter: str) -> None:
    assert split_scope(join_scope(salt, adapter)) == (salt or None, adapter or None)


def test_a_salt_may_look_like_an_adapter() -> None:
    assert split_scope("adapter:x") == ("adapter:x", None)


@pytest.mark.parametrize("version", VERSIONS)
def test_replays_in_both_framings_end_in_number_and_payload(version: ProfileName) -> None:
    profile = PROFILES[version]
    assert profile.replayed(b"t", b"12345678", b"x")[-2:] == (b"12345678", b"x")
    assert profile.replay_end[-2:] == (b"\xff" * 8, b"")
    framed = {"0.5.10": (b"",), "0.5.11": (b"",), "0.5.23": (b"", b"t")}[version]
    assert profile.replayed(b"t", b"12345678", b"x")[:-2] == framed
