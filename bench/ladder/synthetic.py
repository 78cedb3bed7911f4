"""Made-up workloads, all seeded: chat always, the other two where the real texts and trace are not at hand.

Each is fitted to published figures of what it stands for and says "synthetic" in its source.
"""

from collections.abc import Hashable, Iterator

import numpy as np

from bench.ladder.mixed import Prompt, draw
from bench.ladder.mooncake import BLOCK
from bench.ladder.workload import PAGE, Workload, replay

_CONVERSATIONS = 8_000


def chat(seed: int = 1) -> Workload:
    """WildChat-like: 2.5 turns a conversation, messages of 296 (sd 1,609) tokens, answers of 441 (sd 411)."""
    rng = np.random.default_rng(seed)

    def requests() -> Iterator[tuple[int, list[Hashable]]]:
        for conversation, turns in enumerate(rng.geometric(1 / 2.5, _CONVERSATIONS)):
            tokens = 0
            for _ in range(turns):
                tokens += _lognormal(rng, 296, 1_609)
                if tokens > 32_768:
                    break
                yield tokens, [(conversation, page) for page in range(tokens // PAGE)]
                tokens += _lognormal(rng, 441, 411)

    return replay("chat", "synthetic, fitted to WildChat's published turns and lengths", requests(), PAGE)


def mooncake_like(seed: int = 1) -> Workload:
    """First prompts of median 6,909 and 99th percentile 85,000 tokens, answers of 343; all share block 0."""
    rng = np.random.default_rng(seed)

    def requests() -> Iterator[tuple[int, list[Hashable]]]:
        for conversation, turns in enumerate(rng.geometric(8_349 / 12_031, 8_349)):
            tokens = BLOCK + int(rng.lognormal(np.log(6_400), 1.05))
            for _ in range(turns):
                if tokens > 126_000:
                    break
                yield (
                    tokens,
                    [(min(block, 1) * (conversation + 1), block) for block in range(tokens // BLOCK)],
                )
                tokens += _lognormal(rng, 343, 343) + _lognormal(rng, 500, 1_000)

    return replay("mooncake", "synthetic, fitted to the Mooncake conversation trace", requests(), BLOCK)


def mixed_like(seed: int = 1) -> Workload:
    """The three datasets of Mixed by the sizes and lengths of their prompts."""
    rng = np.random.default_rng(seed)

    def pages(kind: str, shared: int, item: int, tokens: int) -> tuple[Hashable, ...]:
        owners = (-1 if page * PAGE < shared else item for page in range(tokens // PAGE))
        return tuple(hash((kind, owner, page)) for page, owner in enumerate(owners))

    toolbench = [int(rng.lognormal(np.log(1_000), 0.6)) + 64 for _ in range(765)]
    documents = [int(rng.uniform(14_000, 40_000)) for _ in range(20)]
    problems = [int(rng.lognormal(np.log(131), 0.58)) + 32 for _ in range(1_233)]
    datasets = {
        "toolbench": [Prompt(size, pages("toolbench", 64, i, size)) for i, size in enumerate(toolbench)],
        "loogle": [
            Prompt(size + 48, (*pages(f"document {i}", size, 0, size), *((i, j, k) for k in range(3))))
            for i, size in enumerate(documents)
            for j in range(11)
        ],
        "programming": [Prompt(size, pages("problem", 16, i, size)) for i, size in enumerate(problems)],
    }
    return draw("mixed", "synthetic, fitted to ToolBench, LooGLE and programming prompts", datasets, seed)


def _lognormal(rng: np.random.Generator, mean: float, deviation: float) -> int:
    """At least one token, from the lognormal law of this mean and standard deviation."""
    variance = np.log1p((deviation / mean) ** 2)
    return 1 + int(rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance)))
