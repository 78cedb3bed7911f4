"""Bytes that real engines published, through the decoder into an agent (`tests/fixtures/golden`)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels import registered_lengths
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent.event_decoder import EventDecoder
from tests.models.agent_fleets import SALT, agent_plan
from tests.models.holdings_naive import NaiveHoldings

GOLDEN = Path(__file__).parent.parent / "fixtures" / "golden"
PLAN = agent_plan(block_size=4, quantum=4, context_length=2_048)
A = list(range(1, 9))
B = list(range(101, 109))

V, D, N = "vram", "dram", "none"
TIERS_0_5_11 = {
    "write_through": {
        "reset": (N, N),
        "insert A": (V, N),
        "dma ack A": (V, N),
        "insert+ack B": (V, V),
        "demote A": (D, V),
        "demote B": (D, D),
        "promote A": (V, D),
        "recompute B": (V, D),  # the engine reports nothing: its GPU copy is not known
        "evict device all": (D, D),
        "evict host all": (N, N),
        "flush": (N, N),
    },
    "write_back": {
        "reset": (N, N),
        "insert A": (V, N),
        "dma ack A": (V, N),
        "insert+ack B": (V, V),
        "demote A": (D, V),
        "demote B": (D, D),
        "promote A": (V, D),
        "recompute B": (V, D),
        "evict device all": (D, D),
        "evict host all": (N, N),
        "flush": (N, N),
    },
}


def load(name: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text("utf-8"))
    return steps


def tier_of(agent: WorkerAgent, tokens: list[int]) -> str:
    """Tier of a prompt whose two blocks must agree."""
    held: dict[int, int] = {}
    for shard in range(PLAN.shards):
        keys, tiers = agent.told.report(shard)
        held |= dict(zip(keys.tolist(), tiers.tolist(), strict=True))
    keys = prefix_keys(
        namespace(PLAN.model, SALT), np.array(tokens, dtype=np.int32), np.array([4, 8], dtype=np.int32)
    )
    (tier,) = {held.get(int(key), 0) for key in keys}
    return (N, V, D)[tier]


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_tiers_follow_hicache_0_5_11(policy: str) -> None:
    agent, decoder = WorkerAgent(PLAN, "us-0", epoch=1), EventDecoder()
    agent.on_attached(replayed=True)
    sequence = 0
    seen = {}
    for step in load("hiradix_0.5.11.json"):
        if step["policy"] != policy:
            continue
        if step["payload_hex"] is not None:
            agent.on_batch(sequence, decoder.decode(bytes.fromhex(step["payload_hex"])))
            sequence += 1
        seen[step["step"]] = (tier_of(agent, A), tier_of(agent, B))
    assert seen == TIERS_0_5_11[policy]


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_hicache_0_5_10_reports_no_tier_change(policy: str) -> None:
    """What it holds is claimed in VRAM until it leaves the host."""
    agent, decoder = WorkerAgent(PLAN, "us-0", epoch=1), EventDecoder()
    agent.on_attached(replayed=True)
    steps = [step for step in load("hiradix_0.5.10.json") if step["policy"] == policy]
    told = [step for step in steps if step["payload_hex"] is not None]
    seen = []
    for sequence, step in enumerate(told):
        agent.on_batch(sequence, decoder.decode(bytes.fromhex(step["payload_hex"])))
        seen.append((step["step"], tier_of(agent, A), tier_of(agent, B)))
    assert seen == [
        ("reset", N, N),
        ("insert A", V, N),
        ("insert+ack B", V, V),
        ("evict host all", N, N),
        ("flush", N, N),
    ]


def test_a_server_0_5_10_is_followed_exactly() -> None:
    agent, decoder = WorkerAgent(PLAN, "us-0", epoch=1), EventDecoder()
    agent.on_attached(replayed=True)
    twin = NaiveHoldings(namespace(PLAN.model, SALT), 4, registered_lengths(PLAN).tolist(), counted=True)
    at_units: dict[int, int] = {}
    for batch in load("server_0.5.10.json"):
        events = decoder.decode(bytes.fromhex(batch["payload_hex"]))
        for event in events:
            twin.apply(event)
        for edit in agent.on_batch(batch["seq"], events):
            at_units.update(edit.tiers)
        assert {key: tier for key, tier in at_units.items() if tier} == twin.held()
    assert agent.state is AgentState.EXACT
    assert agent.batches == 13
    assert len(agent.holdings) > 0
    assert agent.holdings.tree.unknown_removals == agent.holdings.tree.conflicting_stores == 0


def test_golden_batches_hold_the_three_kinds_of_event() -> None:
    decoder = EventDecoder()
    first, second, *_ = load("server_0.5.10.json")
    (cleared,) = decoder.decode(bytes.fromhex(first["payload_hex"]))
    assert isinstance(cleared, AllBlocksCleared)
    (chain,) = decoder.decode(bytes.fromhex(second["payload_hex"]))
    assert isinstance(chain, BlockStored)
    assert (chain.parent, chain.block_size, chain.medium) == (None, 4, "GPU")
    assert chain.tokens[:4].tolist() == [10, 11, 12, 13]
    assert len(chain.tokens) == 4 * len(chain.hashes)
    removed = decoder.decode(bytes.fromhex(load("server_0.5.10.json")[11]["payload_hex"]))
    assert isinstance(removed[0], BlockRemoved) and removed[0].medium == "GPU"
