"""A real agent beside an engine double, a real unit, a real edge, and what another edge would see."""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import aiohttp
import msgspec
import numpy as np
import zmq
import zmq.asyncio
from numpy.typing import NDArray

from bench.agent.fleet import CACHE_TOKENS, plan_of, processes_of
from bench.agent.memory import PROMPT
from bench.agent.shares import Shares
from bench.resident import resident_bytes
from kvcompass.index import IndexView, index_shape
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels import registered_lengths
from kvcompass.plan.dump import dump_plan
from kvcompass.plan.layout import layout_fields
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake, PatchGroups
from kvcompass.warm import warm
from lab.ports import LoopbackPorts
from lab.process import LabProcess, stop_all, wait_ready
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.wire import index, rpc

_START_S: Final = 180.0
_SETTLE_S: Final = 2.0
_FOLLOWER: Final = "bench"
_TAIL: Final = 5
"""Tokens of a prompt behind its last whole block."""
_AT_ONCE: Final = 4
"""Requests; a double that is slower than the rate is not given more."""


@dataclass(frozen=True, slots=True)
class ProcessCosts:
    """One run."""

    page: int
    version: str
    """Of SGLang, as the double plays it."""
    blocks_per_s: float
    """Told to be stored."""
    keys_per_s: float
    """That became visible at the edge."""
    agent_share: float
    """Of one core, and so below."""
    agent_idle_share: float
    """Before the first request: the load is asked for, the lease renewed."""
    agent_mb: float
    """Resident at the end."""
    unit_share: float
    engine_share: float
    late_p50_ms: float
    late_p99_ms: float
    unseen: int
    """Keys that were told and had not become visible at the end."""
    patch_bytes_per_key: float


def process_costs(page: int, version: str, rate: int, seconds: float) -> ProcessCosts:
    """Start everything, prefill new prompts at `rate` blocks a second, and stop everything."""
    with tempfile.TemporaryDirectory(prefix="kvcompass-bench-") as folder:
        run = _Run(page, version, Path(folder))
        try:
            run.start()
            return asyncio.run(run.measure(rate, seconds))
        finally:
            stop_all(run.processes, 3.0)


class _Run:
    def __init__(self, page: int, version: str, folder: Path) -> None:
        self._page, self._version = page, version
        ports = LoopbackPorts(random.Random(os.getpid()))
        engine, events, replay, loads, *ops = (ports.address() for _ in range(7))
        self._engine = engine
        self._events = f"tcp://{events}"
        self._plan = plan_of(page, ports, engine, self._events, f"tcp://{replay}")
        (folder / "plan.toml").write_text(dump_plan(self._plan), "utf-8")
        specs = processes_of(self._plan, version, f"tcp://{loads}", ops)
        self.processes = [LabProcess(spec, folder) for spec in specs]
        self._told_at: dict[int, float] = {}
        """By key: the engine's time of the batch that completed it, s since 1970."""
        self._seen_at: dict[int, float] = {}
        self._asked: dict[int, None] = {}
        """Keys of prompts that were sent and are not visible yet."""
        self._chains: dict[int, list[int]] = {}
        """By a prompt's first tokens: its keys, by the block that completes them."""
        self._blocks: list[tuple[float, int]] = []
        """Time and number of stored blocks, by batch."""
        self._patches: list[tuple[float, int]] = []
        """Time and bytes, by message."""

    def start(self) -> None:
        """Start all, and return when they serve. Kernels are compiled first: it takes a minute, once."""
        warm(self._plan.index.layout, self._plan.index.value_bits)
        for process in self.processes:
            process.start()
        wait_ready(self.processes, _START_S)

    async def measure(self, rate: int, seconds: float) -> ProcessCosts:
        """Let it run, and add up."""
        shape = index_shape(self._plan)
        view = IndexView(shape)
        ready = asyncio.Event()
        tasks = [
            asyncio.create_task(self._follow(view, ready)),
            asyncio.create_task(self._listen()),
        ]
        await asyncio.wait_for(ready.wait(), _START_S)
        idle = Shares(self.processes)
        await asyncio.sleep(min(seconds, 5.0))
        idle_share = idle.taken()["agent"]
        sending = asyncio.create_task(self._send(rate))
        await asyncio.sleep(_SETTLE_S + CACHE_TOKENS / self._page / rate)
        began, shares = time.time(), Shares(self.processes)
        await asyncio.sleep(seconds)
        ended, taken = time.time(), shares.taken()
        sending.cancel()
        await asyncio.sleep(1.0)
        for task in (*tasks, sending):
            task.cancel()
        results = await asyncio.gather(*tasks, sending, return_exceptions=True)
        failures = [each for each in results if isinstance(each, Exception)]
        if failures:
            raise failures[0]
        return self._costs(began, ended, taken, idle_share)

    async def _send(self, rate: int) -> None:
        """Prefill prompts that nobody has seen, evenly."""
        prompts = self._prompts()
        every_s = PROMPT / self._page / rate
        free = asyncio.Semaphore(_AT_ONCE)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            due = time.monotonic()
            while True:
                due += every_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await free.acquire()
                task = group.create_task(self._prefill(session, next(prompts)))
                task.add_done_callback(lambda _: free.release())

    async def _prefill(self, session: aiohttp.ClientSession, tokens: NDArray[np.int32]) -> None:
        body = {"input_ids": tokens.tolist(), "sampling_params": {"max_new_tokens": 0}}
        async with session.post(f"http://{self._engine}/generate", json=body) as answer:
            answer.raise_for_status()
            await answer.read()

    def _prompts(self) -> Iterator[NDArray[np.int32]]:
        rng = np.random.default_rng(1)
        name = namespace(self._plan.model, "")
        lengths = registered_lengths(self._plan)
        while True:
            tokens = rng.integers(0, 8_000, PROMPT + _TAIL, dtype=np.int32)
            keys = prefix_keys(name, tokens[:PROMPT], lengths).tolist()
            self._asked.update(dict.fromkeys(keys))
            self._chains[hash(tuple(tokens[: self._page].tolist()))] = keys
            yield tokens

    async def _listen(self) -> None:
        """Note when the engine says that it told of which key. Prompts are stored in one batch each."""
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(self._events)
            decode = msgspec.msgpack.Decoder().decode
            while True:
                frames = await socket.recv_multipart()
                at, events, *_ = decode(frames[-1])
                stored = 0
                for event in events:
                    kind, names, parent, tokens = _store_fields(event)
                    if kind != "BlockStored":
                        continue
                    stored += len(names)
                    if parent is None:
                        keys = self._chains.pop(hash(tuple(tokens[: self._page])), ())
                        self._told_at.update(dict.fromkeys(keys, at))
                self._blocks.append((at, stored))

    async def _follow(self, view: IndexView, ready: asyncio.Event) -> None:
        """Follow the unit as an edge does, and note what has become visible with which message."""
        layout = layout_fields(self._plan)
        edge = Handshake(_FOLLOWER, 1, PROTOCOL_VERSION, self._plan.plan_version, layout)
        follower = IndexFollower(0, view, edge)
        async with Dialer({}).channel(self._plan.units[0].address) as channel:
            call = rpc.subscribe(channel)()
            await call.write(follower.subscribe_request())
            while True:
                message = await rpc.read(call)
                assert message is not None, "the unit goes on"
                ended = follower.on_message(message, now_us())
                assert ended is None, ended
                at = time.time()
                if follower.was_exact:
                    ready.set()
                if isinstance(message, PatchGroups):
                    self._patches.append((at, len(index.encode_unit_to_edge(message))))
                    self._look(view, at)

    def _look(self, view: IndexView, at: float) -> None:
        keys = list(self._asked)
        visible = view.lookup(np.array(keys, np.uint64)).any(axis=1)
        for key in np.array(keys, np.uint64)[visible].tolist():
            self._seen_at[key] = at
            del self._asked[key]

    def _costs(self, began: float, ended: float, taken: dict[str, float], idle_share: float) -> ProcessCosts:
        told = {key: at for key, at in self._told_at.items() if began <= at < ended}
        late_ms = [1e3 * (self._seen_at[key] - at) for key, at in told.items() if key in self._seen_at]
        cuts = quantiles(late_ms, n=100) if len(late_ms) > 1 else [float("nan")] * 99
        seconds = ended - began
        agent = self.processes[-1].pid
        assert agent is not None, "the agent runs"
        patched = sum(size for at, size in self._patches if began <= at < ended)
        visible = sum(began <= at < ended for at in self._seen_at.values())
        return ProcessCosts(
            page=self._page,
            version=self._version,
            blocks_per_s=sum(count for at, count in self._blocks if began <= at < ended) / seconds,
            keys_per_s=visible / seconds,
            agent_share=taken["agent"],
            agent_idle_share=idle_share,
            agent_mb=resident_bytes(agent) / 1e6,
            unit_share=taken["unit"],
            engine_share=taken["engine"],
            late_p50_ms=cuts[49],
            late_p99_ms=cuts[98],
            unseen=len(told) - len(late_ms),
            patch_bytes_per_key=patched / max(visible, 1),
        )


def _store_fields(event: Any) -> tuple[Any, Any, Any, Any]:
    """Kind, names, parent and tokens of an event in either form, as far as it has them."""
    if isinstance(event, dict):
        names = ("type", "block_hashes", "parent_block_hash", "token_ids")
        event = [event.get(name) for name in names]
    kind, hashes, parent, tokens = (*event, None, None, None)[:4]
    return kind, hashes, parent, tokens
