"""Dynamo's router against a twin that adds its costs up from the definition."""

import numpy as np

from kvcompass.engine_events import BlockStored
from kvcompass.engine_model.cache_events import DRAM, VRAM
from kvcompass.engine_model.token_chain import TokenChain
from simulator.request import Request
from simulator.rivals.chunk_names import chunk_names
from simulator.rivals.dynamo import DYNAMO, Dynamo
from simulator.rivals.random_choice import RANDOM
from simulator.router import Rival, Site
from tests.simulation.rival_runs import LOCAL_MS, PAGE, Run, ask, small_fleet, text


class _Twin(Dynamo):
    """Checks that nobody is cheaper than the worker chosen, by sets of blocks and the engines themselves."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.under_way: dict[int, tuple[Request, int, int]] = {}
        self.prefilling: set[int] = set()
        self.decisive = 0

    def _place(self, request: Request, tried: list[int]) -> None:
        costs = [self._cost(request, worker) for worker in range(self._workers)]
        super()._place(request, tried)
        worker = self._routers[self._site.here].flights[request.id].worker
        assert abs(costs[worker] - min(costs)) < 1e-9
        self.decisive += max(costs) > min(costs) + 1
        self.under_way[request.id] = request, worker, self._held(request, worker) * PAGE
        self.prefilling.add(request.id)

    def first_token(self, request: Request, worker: int) -> None:
        super().first_token(request, worker)
        self.prefilling.discard(request.id)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        super().finished(request, worker, cached_tokens)
        del self.under_way[request.id]

    def _held(self, request: Request, worker: int) -> int:
        cache = self._site._site.hosts[worker].engine.cache  # type: ignore[attr-defined]
        return int(cache.match(TokenChain(request.prompt, PAGE), (len(request.prompt) - 1) // PAGE))

    def _cost(self, request: Request, worker: int) -> float:
        here = [(r, held) for r, at, held in self.under_way.values() if at == worker]
        to_prefill = sum(len(r.prompt) - held for r, held in here if r.id in self.prefilling)
        blocks = {name for r, _ in [*here, (request, 0)] for name in chunk_names(r.prompt, PAGE)}
        prefill = (to_prefill + len(request.prompt)) / PAGE - self._held(request, worker)
        return max(0.0, prefill) + len(blocks)


def test_a_worker_of_least_cost_is_taken() -> None:
    """All requests in one region, so far apart that other regions' caches are known: two broadcasts."""
    requests = [
        ask(i, 400.0 * i, 0, text(i % 7, 12 * PAGE), text(i % 13, 5 * PAGE), text(i, 3 * PAGE), answer=300)
        for i in range(80)
    ]
    run = Run(Rival("dynamo", _Twin, "twin"), requests, small_fleet(wan_ms=LOCAL_MS))
    assert run.router.decisive > 40


def test_blocks_in_host_memory_count_three_quarters() -> None:
    """Worker 0 holds 5 blocks on its GPU, 1 holds 8 in host memory, 2 holds 3 and 4 more: 5, 6 and 6."""
    prompt = text("prompt", 10 * PAGE)

    def stored(count: int, medium: str) -> BlockStored:
        return BlockStored(tuple(range(count)), None, prompt[: count * PAGE], PAGE, medium)

    def chosen(*held: tuple[int, int, str]) -> set[int]:
        def make(site: Site) -> Dynamo:
            router = Dynamo(site)
            for worker, count, medium in held:
                region = site.fleet.region_of(worker)
                site.begin(region, router.cache_events, worker, [stored(count, medium)])
            return router

        workers = set()
        for seed in range(12):
            run = Run(Rival("dynamo", make, "fed"), [ask(0, 900.0, 0, prompt)], seed=seed)
            workers.add(run.workers[0])
        return workers

    gpu_0, host_1 = (0, 5, VRAM), (1, 8, DRAM)
    both_2 = ((2, 3, VRAM), (2, 7, DRAM))
    assert chosen(gpu_0) == {0}
    assert chosen(gpu_0, host_1) == {1}
    assert chosen(gpu_0, *both_2) == {2}
    assert chosen(gpu_0, host_1, *both_2) == {1, 2}
    assert chosen((0, 6, VRAM), host_1, *both_2) == {0, 1, 2}
    assert len(chosen()) > 2


def test_dynamo_reuses_and_balances_within_a_region() -> None:
    requests = [
        ask(i, 60.0 * i, 0, text(i % 10, 20 * PAGE), text(i, 2 * PAGE), answer=20) for i in range(200)
    ]
    near = small_fleet(wan_ms=LOCAL_MS)
    dynamo, by_chance = Run(DYNAMO, requests, near), Run(RANDOM, requests, near)
    assert dynamo.reused > 1.1 * by_chance.reused
    assert dynamo.first_token_ms.mean() < 0.9 * by_chance.first_token_ms.mean()
    assert np.bincount(dynamo.workers, minlength=6).max() < 60


def test_dynamo_crosses_an_ocean_for_two_blocks() -> None:
    """Saved: 9 ms of prefill. Paid: 320 ms."""
    first = ask(0, 0.0, 1, text("short", 2 * PAGE), text(0, 10))
    second = ask(1, 3_000.0, 0, text("short", 2 * PAGE), text(1, 10))
    run = Run(DYNAMO, [first, second])
    assert run.workers[0] == run.workers[1]
    other = ask(1, 3_000.0, (run.regions[run.workers[0]] + 1) % 3, text("short", 2 * PAGE), text(1, 10))
    run = Run(DYNAMO, [first, other])
    assert run.workers[0] == run.workers[1]
    assert run.first_token_ms[1] > 250.0
