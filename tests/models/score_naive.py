"""The joint score in plain Python, written from the paper's formula and decision 0309."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NaiveWorker:
    wan_ms: float
    queue_ms: float
    beta: float
    gamma: float
    belief: float
    match: int
    expected: int
    in_dram: bool
    is_candidate: bool
    is_local: bool
    context: float = 0.0
    context_rate: float = 0.0

    @property
    def credited(self) -> int:
        return max(self.match, self.expected)


def naive_price(workers: list[NaiveWorker], tau: float, price_max: float) -> float:
    return min([price_max] + [w.queue_ms / tau for w in workers if w.is_candidate])


def naive_score(worker: NaiveWorker, price: float, prompt_tokens: int, decode_tokens: float) -> float:
    effective = worker.belief * worker.credited
    score = worker.wan_ms + worker.queue_ms + (1 + price) * worker.beta * (prompt_tokens - effective)
    if worker.in_dram and worker.match >= worker.expected:
        score += worker.gamma * effective
    return score + decode_tokens * worker.context * worker.context_rate
