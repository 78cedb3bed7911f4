"""Memory of a resident block: what a process grows by."""

import gc
import multiprocessing
import os
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.engine_model import plan
from bench.resident import resident_bytes
from kvcompass.engine_events import BlockHash, BlockStored
from kvcompass.roles.worker_agent import WorkerAgent

PROMPT: Final = 2_048
"""Tokens. The first half is shared by two prompts."""


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Of one agent with so many blocks."""

    page: int
    """Tokens a block."""
    blocks: int
    keys: int
    bytes_per_block: float
    token_bytes: int
    """Of a block: its tokens are kept to be hashed again when what is above it comes back."""


def memory_costs(page: int, blocks: int) -> MemoryCosts:
    """Fill an agent in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_fill, (page, blocks))


def _fill(page: int, blocks: int) -> MemoryCosts:
    fleet = plan(1)
    agent = WorkerAgent(replace(fleet, model=replace(fleet.model, block_size=page)), "us-0", epoch=1)
    agent.on_engine_up(1, same_process=False)
    agent.on_attached(replayed=True)
    rng = np.random.default_rng(1)
    _store(agent, rng)  # what is imported and made at the first time is no memory of blocks
    gc.collect()
    before, had = resident_bytes(os.getpid()), agent.holdings.blocks
    while agent.holdings.blocks - had < blocks:
        _store(agent, rng)
    gc.collect()
    return MemoryCosts(
        page=page,
        blocks=agent.holdings.blocks,
        keys=len(agent.holdings),
        bytes_per_block=(resident_bytes(os.getpid()) - before) / (agent.holdings.blocks - had),
        token_bytes=4 * page,
    )


def _store(agent: WorkerAgent, rng: np.random.Generator) -> None:
    """Two prompts that share their first half."""
    page = agent.holdings.block_size
    shared = _stored(rng, None, page)
    agent.on_batch(agent.applied + 1, [shared, _stored(rng, shared.hashes[-1], page)])
    agent.on_batch(agent.applied + 1, [_stored(rng, shared.hashes[-1], page)])


def _stored(rng: np.random.Generator, parent: BlockHash | None, page: int) -> BlockStored:
    names = rng.integers(-(2**63), 2**63 - 1, PROMPT // page // 2, dtype=np.int64)
    tokens = rng.integers(0, 50_000, PROMPT // 2, dtype=np.int32)
    return BlockStored(tuple(names.tolist()), parent, tokens, page, "GPU")
