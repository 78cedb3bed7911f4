"""What one request costs the engine model and the worker agent, in processor time. Prints a table and JSON.

python -m bench.engine_model --json out/bench/engine_model.json

A stream like Mixed runs through several engines on one virtual clock, as in a simulation: whoever has
something due is woken, every engine is asked for its load ten times a second. What they tell then runs
through as many agents. Totals are of undisturbed passes, the best of some; parts are of a pass in which each
call is timed, which makes it slower. Time is the thread's own; on a busy machine all takes longer, caches
being shared, and the yardstick, a fixed piece of interpreted work, shows only a part of that.
"""

import argparse
import gc
import heapq
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import thread_time
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.tables import plain
from bench.yardstick import yardsticks_us
from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import (
    BlockNames,
    Engine,
    EngineConfig,
    EngineRequest,
    EvictionPolicy,
    ModelLoad,
    Scheduling,
)
from kvcompass.plan.model import (
    IndexRule,
    LengthRule,
    MaintenanceUnit,
    ModelIdentity,
    Plan,
    RoutingRule,
    SharingGroup,
    Worker,
)
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.worker_agent import WorkerAgent

BLOCK = 64
SHARDS = 4
LOAD_PERIOD_US = 100_000
RENEWAL_PERIOD_US = 1_000_000
VOCABULARY = 49_152
Tokens = NDArray[np.int32]
T = TypeVar("T")
_YARDSTICKS = 300


class Costs:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: defaultdict[str, int] = defaultdict(int)

    def timed(self, name: str, call: Callable[..., T], *arguments: object) -> T:
        """Do something and book its time."""
        start = thread_time()
        result = call(*arguments)
        self.seconds[name] += thread_time() - start
        self.counts[name] += 1
        return result

    def per(self, count: int) -> dict[str, float]:
        """Microseconds a unit of `count` by name, without what booking itself costs."""
        booking = Costs()
        for _ in range(5_000):
            booking.timed("nothing", int)
        each = booking.seconds["nothing"] / 5_000
        return {
            f"{name}_us": 1e6 * (seconds - each * self.counts[name]) / count
            for name, seconds in sorted(self.seconds.items())
        }


class Untimed(Costs):
    """Does things and books nothing."""

    def timed(self, name: str, call: Callable[..., T], *arguments: object) -> T:
        """Do something."""
        return call(*arguments)


class Prompts:
    """The part of Mixed that one engine sees: tools, documents with questions, programming problems."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = np.random.default_rng(seed)
        start = self._tokens(64)
        tools = [int(size) + 64 for size in rng.lognormal(np.log(1_000), 0.6, 160)]
        self._tools = [np.concatenate((start, self._tokens(size))) for size in tools]
        self._documents = [self._tokens(int(size)) for size in rng.uniform(14_000, 40_000, 6)]
        self._problems = [self._tokens(int(size) + 32) for size in rng.lognormal(np.log(131), 0.58, 500)]

    def draw(self, number: int) -> EngineRequest:
        """A prompt, its answer and its category."""
        kind = self._rng.random()
        answer = self._tokens(int(self._rng.integers(100, 301)))
        if kind < 0.50:
            prompt, category = np.concatenate((self._pick(self._tools), self._tokens(40))), "tools"
        elif kind < 0.55:
            prompt, category = np.concatenate((self._pick(self._documents), self._tokens(48))), "document"
        else:
            prompt, category = self._pick(self._problems), "problem"
        return EngineRequest(str(number), prompt, answer, category)

    def _pick(self, prompts: list[Tokens]) -> Tokens:
        return prompts[int(len(prompts) * self._rng.random() ** 1.5)]

    def _tokens(self, count: int) -> Tokens:
        return self._rng.integers(0, VOCABULARY, count, dtype=np.int32)


Arrival = tuple[int, int, EngineRequest]
"""Time (us), engine and request."""


def arrivals(engines: int, requests: int, per_second: float) -> list[Arrival]:
    """A Poisson stream, dealt at random."""
    rng = np.random.default_rng(7)
    prompts = [Prompts(number) for number in range(engines)]
    times = np.cumsum(rng.exponential(1e6 / (per_second * engines), requests)).astype(np.int64).tolist()
    targets = rng.integers(engines, size=requests).tolist()
    return [
        (at_us, target, prompts[target].draw(number))
        for number, (at_us, target) in enumerate(zip(times, targets, strict=True))
    ]


def plan(engines: int) -> Plan:
    """One region with so many workers."""
    return Plan(
        fleet="bench",
        plan_version=1,
        model=ModelIdentity("m", "builtin:kvcompass-bpe", "builtin:kvcompass-chat", BLOCK, 131_072),
        lengths=LengthRule(),
        index=IndexRule(),
        routing=RoutingRule(),
        regions=("us",),
        wan_ms=((0.5,),),
        edges=(),
        units=tuple(MaintenanceUnit(f"unit-{i}", i, "us", "127.0.0.1:7100") for i in range(SHARDS)),
        workers=tuple(
            Worker(f"us-{i}", "us", "", "", i // 16, i % 16, 0.073, 0.00524) for i in range(engines)
        ),
        sharing_groups=(SharingGroup("default"),),
    )


@dataclass
class Told:
    """What engines told, in order: the engine's number and its news. And what they did."""

    news: list[tuple[int, int, list[EngineEvent] | ModelLoad | None]] = field(default_factory=list)
    """Time (us), engine, and a batch, a load, or that a renewal is due."""
    finished: int = 0
    cached_tokens: int = 0
    wakes: int = 0


class Fleet:
    """Engines on one clock."""

    def __init__(self, config: EngineConfig, count: int, costs: Costs) -> None:
        self.engines = [Engine(config) for _ in range(count)]
        self.told = Told()
        self._costs = costs
        self._wakes: list[int | None] = [None] * count
        self._heap = [(LOAD_PERIOD_US, 1, number) for number in range(count)]
        self._heap += [(RENEWAL_PERIOD_US, 2, number) for number in range(count)]
        heapq.heapify(self._heap)

    def submit(self, arrival: Arrival) -> None:
        """The next request arrives: everything before it happens, then it does."""
        at_us, target, request = arrival
        while self._heap[0][0] <= at_us:
            self._next()
        engine = self.engines[target]
        assert self._costs.timed("engine.submit", engine.submit, request, at_us) is None
        self._settle(target, at_us)

    def _next(self) -> None:
        now_us, what, number = heapq.heappop(self._heap)
        engine = self.engines[number]
        if what == 0:
            if self._wakes[number] != now_us:
                return
            self.told.wakes += 1
            self._costs.timed("engine.advance", engine.advance, now_us)
        elif what == 1:
            load = self._costs.timed("engine.load", engine.load, now_us)
            self.told.news.append((now_us, number, load))
            heapq.heappush(self._heap, (now_us + LOAD_PERIOD_US, 1, number))
        else:
            self.told.news.append((now_us, number, None))
            heapq.heappush(self._heap, (now_us + RENEWAL_PERIOD_US, 2, number))
        self._settle(number, now_us)

    def _settle(self, number: int, now_us: int) -> None:
        """Hand on what the engine tells, as whoever runs it does after every call."""
        costs, engine, told = self._costs, self.engines[number], self.told
        progress = costs.timed("engine.take", engine.take_progress)
        told.news += [(now_us, number, batch) for batch in costs.timed("engine.take", engine.take_batches)]
        due_us = costs.timed("engine.take", engine.next_deadline_us)
        if due_us is not None and due_us != self._wakes[number]:
            heapq.heappush(self._heap, (due_us, 0, number))
        self._wakes[number] = due_us
        for step in progress:
            if step.finished:
                told.finished += 1
                told.cached_tokens += step.cached_tokens


class Agents:
    """The agents of a fleet."""

    def __init__(self, count: int, costs: Costs) -> None:
        fleet = plan(count)
        self.agents = [WorkerAgent(fleet, f"us-{number}", 1) for number in range(count)]
        for agent in self.agents:
            agent.on_engine_up(1, same_process=False)
            agent.on_attached(replayed=True)
        self.edits = 0
        self._batches = [0] * count
        self._costs = costs

    def hear(self, now_us: int, number: int, news: list[EngineEvent] | ModelLoad | None) -> None:
        """One agent learns something, or has to renew its leases."""
        costs, agent = self._costs, self.agents[number]
        if isinstance(news, list):
            sequence = self._batches[number]
            self._batches[number] += 1
            costs.timed("agent.on_batch", agent.order, sequence)
            for edits in costs.timed("agent.on_batch", agent.on_batch, sequence, news):
                self.edits += len(edits.tiers)
        elif news is not None:
            load = EngineLoad(
                news.running,
                news.waiting,
                news.used_tokens,
                news.capacity_tokens,
                news.waiting_uncached_tokens,
                news.prefilled_tokens,
                news.prefilled_us,
            )
            costs.timed("agent.load", agent.on_engine_load, load, now_us)
            costs.timed("agent.load", agent.load, now_us)
        else:
            for shard in range(SHARDS):
                costs.timed("agent.renew", agent.holdings.digest, shard)


def one_pass(
    config: EngineConfig, engines: int, stream: list[Arrival], warm_up: int, costs: Costs
) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds a request of engines and agents, and what the stream was like."""
    requests = len(stream) - warm_up
    fleet = Fleet(config, engines, costs)
    for arrival in stream[:warm_up]:
        fleet.submit(arrival)
    heard, fleet.told = fleet.told.news, Told()
    costs.seconds.clear()
    start = thread_time()
    for arrival in stream[warm_up:]:
        fleet.submit(arrival)
    engine_us = 1e6 * (thread_time() - start) / requests
    told = fleet.told
    agents = Agents(engines, Untimed())
    for news in heard:
        agents.hear(*news)
    edits, agents._costs = agents.edits, costs
    start = thread_time()
    for news in told.news:
        agents.hear(*news)
    agent_us = 1e6 * (thread_time() - start) / requests
    prompts = sum(len(request.prompt) for _, _, request in stream[warm_up:])
    now_us = stream[-1][0]
    shape = {
        "prompt_tokens": prompts / requests,
        "reused_share": told.cached_tokens / prompts,
        "batches": sum(isinstance(news, list) for _, _, news in told.news) / requests,
        "edits": (agents.edits - edits) / requests,
        "wakes": told.wakes / requests,
        "loads": sum(isinstance(news, ModelLoad) for _, _, news in told.news) / requests,
        "waiting_at_the_end": sum(engine.load(now_us).waiting for engine in fleet.engines) / engines,
        "running_at_the_end": sum(engine.load(now_us).running for engine in fleet.engines) / engines,
    }
    return {"engine_us": engine_us, "agent_us": agent_us}, shape


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=3_000)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--per-second", type=float, default=10.0, help="requests an engine")
    parser.add_argument("--scheduling", choices=[each.value for each in Scheduling], default="turns")
    parser.add_argument("--names", choices=[each.value for each in BlockNames], default="numbered")
    parser.add_argument("--eviction", choices=[each.value for each in EvictionPolicy], default="lru")
    parser.add_argument("--tokens", action="store_true", help="tell of every token, as the double does")
    parser.add_argument("--host-cache-tokens", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = EngineConfig(
        page_size=BLOCK,
        host_cache_tokens=options.host_cache_tokens,
        eviction=EvictionPolicy(options.eviction),
        scheduling=Scheduling(options.scheduling),
        block_names=BlockNames(options.names),
        token_progress=options.tokens,
    )
    stream = arrivals(options.engines, options.warm_up + options.requests, options.per_second)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    yardsticks = [median(yardsticks_us(_YARDSTICKS))]
    totals: list[dict[str, float]] = []
    for _ in range(options.repeats):
        totals.append(one_pass(config, options.engines, stream, options.warm_up, Untimed())[0])
        yardsticks.append(median(yardsticks_us(_YARDSTICKS)))
    results = {name: min(total[name] for total in totals) for name in totals[0]}
    results["yardstick_us"] = min(yardsticks)
    costs = Costs()
    _, shape = one_pass(config, options.engines, stream, options.warm_up, costs)
    results |= costs.per(options.requests) | shape
    print(plain(("", ""), [(name, f"{value:.3f}") for name, value in results.items()]))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
