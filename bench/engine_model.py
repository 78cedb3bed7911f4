"""What one request costs the engine model and the worker agent, in processor time. Prints a table and JSON.

python -m bench.engine_model --json out/bench/engine_model.json

A stream like Mixed runs through several engines and agents on one virtual clock, as in a simulation: whoever
has something due is woken, every engine is asked for its load ten times a second. Time is the thread's own,
but on a busy machine all takes longer: the yardstick, a fixed piece of interpreted work done now and then,
tells how fast it was, and `engine_yardsticks` and `agent_yardsticks` compare between runs.
"""

import argparse
import heapq
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.tables import plain
from kvcompass.engine_model import BlockNames, Engine, EngineConfig, EngineRequest, Scheduling
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


class Prompts:
    """The part of Mixed that one engine sees: tools, documents with questions, programming problems."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = np.random.default_rng(seed)
        start = self._tokens(64)
        tools = [int(size) + 64 for size in rng.lognormal(np.log(1_000), 0.6, 160)]
        self._tools = [np.concatenate((start, self._tokens(size))) for size in tools]
        self._documents = [self._tokens(int(size)) for size in rng.uniform(14_000, 40_000, 6)]
        self._problems = [self._tokens(int(size) + 32) for size in rng.lognormal(np.log(131), 0.58, 500)]

    def draw(self) -> tuple[Tokens, Tokens, str]:
        """A prompt, its answer and its category."""
        kind = self._rng.random()
        answer = self._tokens(int(self._rng.integers(100, 301)))
        if kind < 0.50:
            return np.concatenate((self._pick(self._tools), self._tokens(40))), answer, "tools"
        if kind < 0.55:
            return np.concatenate((self._pick(self._documents), self._tokens(48))), answer, "document"
        return self._pick(self._problems), answer, "problem"

    def _pick(self, prompts: list[Tokens]) -> Tokens:
        return prompts[int(len(prompts) * self._rng.random() ** 1.5)]

    def _tokens(self, count: int) -> Tokens:
        return self._rng.integers(0, VOCABULARY, count, dtype=np.int32)


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


class Station:
    """An engine and its agent."""

    def __init__(self, config: EngineConfig, fleet: Plan, number: int, costs: Costs) -> None:
        self.engine = Engine(config)
        self.agent = WorkerAgent(fleet, f"us-{number}", 1)
        self.agent.on_engine_up(1, same_process=False)
        self.prompts = Prompts(number)
        self.finished = self.prompt_tokens = self.cached_tokens = self.batches = self.edits = 0
        self._costs = costs
        self.wakes_us: int | None = None

    def submit(self, number: int, now_us: int) -> None:
        """The next request of the stream arrives."""
        prompt, answer, category = self.prompts.draw()
        request = EngineRequest(str(number), prompt, answer, category)
        assert self._costs.timed("engine.submit", self.engine.submit, request, now_us) is None
        self.prompt_tokens += len(prompt)

    def wake(self, now_us: int) -> None:
        """Something is due."""
        self._costs.timed("engine.advance", self.engine.advance, now_us)

    def report_load(self, now_us: int) -> None:
        """The agent asks the engine, and the region's edges the agent."""
        costs, agent = self._costs, self.agent
        load = costs.timed("engine.load", self.engine.load, now_us)
        told = EngineLoad(
            load.running,
            load.waiting,
            load.used_tokens,
            load.capacity_tokens,
            load.waiting_uncached_tokens,
            load.prefilled_tokens,
            load.prefilled_us,
        )
        costs.timed("agent.load", agent.on_engine_load, told, now_us)
        costs.timed("agent.load", agent.load, now_us)

    def renew(self) -> None:
        """The agent's renewals say what is held in each shard."""
        holdings = self.agent.holdings
        for shard in range(SHARDS):
            self._costs.timed("agent.renew", holdings.digest, shard)

    def settle(self) -> None:
        """Hand on what the engine tells, as whoever runs it does after every call."""
        costs = self._costs
        progress = costs.timed("engine.take", self.engine.take_progress)
        batches = costs.timed("engine.take", self.engine.take_batches)
        self.wakes_us = costs.timed("engine.take", self.engine.next_deadline_us)
        for batch in batches:
            number = self.batches
            self.batches += 1
            costs.timed("agent.on_batch", self.agent.order, number)
            edits = costs.timed("agent.on_batch", self.agent.on_batch, number, batch)
            self.edits += sum(len(edit.tiers) for edit in edits)
        for step in progress:
            if step.finished:
                self.finished += 1
                self.cached_tokens += step.cached_tokens


def arrivals(engines: int, requests: int, per_second: float) -> Iterator[tuple[int, int]]:
    """Time (us) and engine of each request: a Poisson stream, dealt at random."""
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.exponential(1e6 / (per_second * engines), requests))
    yield from zip(
        times.astype(np.int64).tolist(), rng.integers(engines, size=requests).tolist(), strict=True
    )


def run(
    config: EngineConfig, engines: int, warm_up: int, requests: int, per_second: float
) -> dict[str, float]:
    """Microseconds a request of each part, and what the stream was like."""
    costs = Costs()
    fleet = plan(engines)
    stations = [Station(config, fleet, number, costs) for number in range(engines)]
    stream = arrivals(engines, warm_up + requests, per_second)
    heap: list[tuple[int, int, int]] = [(LOAD_PERIOD_US, 1, number) for number in range(engines)]
    heap += [(RENEWAL_PERIOD_US, 2, number) for number in range(engines)]
    heapq.heapify(heap)
    submitted = 0
    yardsticks: list[float] = []
    for at_us, target in stream:
        while heap and heap[0][0] <= at_us:
            now_us, what, number = heapq.heappop(heap)
            station = stations[number]
            if what == 0:
                if station.wakes_us != now_us:
                    continue
                station.wake(now_us)
            elif what == 1:
                station.report_load(now_us)
                heapq.heappush(heap, (now_us + LOAD_PERIOD_US, 1, number))
            else:
                station.renew()
                heapq.heappush(heap, (now_us + RENEWAL_PERIOD_US, 2, number))
            station.settle()
            if station.wakes_us is not None:
                heapq.heappush(heap, (station.wakes_us, 0, number))
        if submitted == warm_up:
            costs.seconds.clear()
            costs.counts.clear()
            yardsticks.clear()
            base = [(s.prompt_tokens, s.cached_tokens, s.batches, s.edits) for s in stations]
        if submitted % 50 == 0:
            yardsticks.append(yardstick_us())
        station = stations[target]
        station.submit(submitted, at_us)
        submitted += 1
        station.settle()
        if station.wakes_us is not None:
            heapq.heappush(heap, (station.wakes_us, 0, target))
    parts = costs.per(requests)
    totals = {
        f"{who}_us": sum(us for name, us in parts.items() if name.startswith(who))
        for who in ("engine", "agent")
    }
    prompt, cached, batches, edits = (
        sum(values) / requests
        for values in zip(
            *(
                (s.prompt_tokens - p, s.cached_tokens - c, s.batches - b, s.edits - e)
                for s, (p, c, b, e) in zip(stations, base, strict=True)
            ),
            strict=True,
        )
    )
    yardstick = statistics.median(yardsticks)
    totals |= {f"{name[:-3]}_yardsticks": us / yardstick for name, us in totals.items()}
    shape = {
        "yardstick_us": yardstick,
        "prompt_tokens": prompt,
        "reused_share": cached / prompt,
        "batches": batches,
        "edits": edits,
        "wakes": costs.counts["engine.advance"] / requests,
        "loads": costs.counts["engine.load"] / requests,
        "waiting_at_the_end": float(sum(s.engine.load(at_us).waiting for s in stations)) / engines,
        "running_at_the_end": float(sum(s.engine.load(at_us).running for s in stations)) / engines,
    }
    return totals | parts | shape


def yardstick_us() -> float:
    """A fixed piece of interpreted work."""
    start = thread_time()
    table: dict[int, int] = {}
    for i in range(1_000):
        table[i * 7919 % 1_009] = i
    return 1e6 * (thread_time() - start)


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
    parser.add_argument("--tokens", action="store_true", help="tell of every token, as the double does")
    parser.add_argument("--host-cache-tokens", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = EngineConfig(
        page_size=BLOCK,
        host_cache_tokens=options.host_cache_tokens,
        scheduling=Scheduling(options.scheduling),
        block_names=BlockNames(options.names),
        token_progress=options.tokens,
    )
    results = run(config, options.engines, options.warm_up, options.requests, options.per_second)
    print(plain(("", ""), [(name, f"{value:.3f}") for name, value in results.items()]))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
