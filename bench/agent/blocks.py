"""Processor time of reading a block's events and taking them in."""

import gc
from dataclasses import dataclass, replace
from statistics import median
from time import thread_time
from types import ModuleType
from typing import Final

from bench.engine_model import Fleet, Untimed, arrivals, plan
from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import BlockNames, EngineConfig
from kvcompass.roles.worker_agent import WorkerAgent
from services.mock_sglang.profiles import array_events, map_events
from services.worker_agent.event_decoder import EventDecoder

PAGES: Final = (16, 64)
FORMS: Final[dict[str, ModuleType]] = {"array": array_events, "map": map_events}
_PASSES: Final = 5
_PER_SECOND: Final = 10.0


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Medians, for each stored block."""

    page: int
    """Tokens a block."""
    form: str
    blocks: int
    batches: int
    removed: int
    read_us: float
    """From bytes to events."""
    taken_us: float
    """From events to edits by shard."""
    blocks_per_s: float
    payload_bytes: float


def block_costs(page: int, requests: int) -> list[BlockCosts]:
    """Both forms of one stream, pass by pass in turns."""
    batches = _batches(page, requests)
    payloads = {
        form: [module.encode_batch(batch, 1.0, 0) for batch in batches] for form, module in FORMS.items()
    }
    times: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMS}
    agents: dict[str, WorkerAgent] = {}
    gc.collect()
    gc.freeze()
    for _ in range(_PASSES):
        for form, raw in payloads.items():
            agents[form], *taken = _one_pass(page, raw)
            times[form].append((taken[0], taken[1]))
    gc.unfreeze()
    return [_costs(page, form, payloads[form], agents[form], times[form]) for form in FORMS]


def _batches(page: int, requests: int) -> list[list[EngineEvent]]:
    """What one engine tells under a stream like Mixed."""
    config = EngineConfig(page_size=page, block_names=BlockNames.HASHED)
    fleet = Fleet(config, 1, Untimed())
    for arrival in arrivals(1, requests, _PER_SECOND):
        fleet.submit(arrival)
    return [news for _, _, news in fleet.told.news if isinstance(news, list)]


def _one_pass(page: int, payloads: list[bytes]) -> tuple[WorkerAgent, float, float]:
    fleet = plan(1)
    agent = WorkerAgent(replace(fleet, model=replace(fleet.model, block_size=page)), "us-0", epoch=1)
    agent.on_engine_up(1, same_process=False)
    agent.on_attached(replayed=True)
    decoder = EventDecoder()
    read_s = taken_s = 0.0
    for number, payload in enumerate(payloads):
        began = thread_time()
        events = decoder.decode(payload)
        read = thread_time()
        agent.order(number)
        agent.on_batch(number, events)
        read_s += read - began
        taken_s += thread_time() - read
    return agent, read_s, taken_s


def _costs(
    page: int, form: str, payloads: list[bytes], agent: WorkerAgent, times: list[tuple[float, float]]
) -> BlockCosts:
    counters = agent.holdings.events
    blocks = counters.stored_blocks
    read_us, taken_us = (1e6 * median(each) / blocks for each in zip(*times, strict=True))
    return BlockCosts(
        page=page,
        form=form,
        blocks=blocks,
        batches=len(payloads),
        removed=counters.removed_blocks,
        read_us=read_us,
        taken_us=taken_us,
        blocks_per_s=1e6 / (read_us + taken_us),
        payload_bytes=sum(map(len, payloads)) / blocks,
    )
