"""Where to send a prompt of 4,096 tokens: the whole of what an edge does between tokens and a worker."""

from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.index.fleet import NOW_US, PROMPT, Fleet
from bench.index.results import Results
from bench.index.tables import random_keys
from bench.index.timing import timed
from kvcompass.keys import prefix_keys

ASKED = 6_000
COLD = 50_000
_T = TypeVar("_T")


def measure(fleet: Fleet, name: str, results: Results, *paths: str) -> None:
    """Decisions from tokens and from keys, and the match alone. `paths` get the JSON of both, by name."""
    prompts = [prompt[:-1] for prompt in _often(fleet.prompts)]
    keys = _often(fleet.keys)
    edge, space, rungs = fleet.edge, fleet.space, fleet.rungs

    def from_tokens(prompt: NDArray[np.int32]) -> object:
        return edge.decide(PROMPT, prefix_keys(space, prompt, rungs), "default", NOW_US)

    def from_keys(asked: NDArray[np.uint64]) -> object:
        return edge.decide(PROMPT, asked, "default", NOW_US)

    def places(what: str) -> tuple[str, ...]:
        return tuple(f"{path}.{what}" for path in paths)

    for call, argument in ((from_tokens, prompts[0]), (from_keys, keys[0]), (fleet.unit.match, keys[0])):
        call(argument)
    results.time(f"decide from tokens, {name}", timed(from_tokens, prompts), *places("tokens"))
    results.time(f"decide from keys, {name}", timed(from_keys, keys), *places("keys"))
    results.time(f"match, {name}", timed(fleet.unit.match, keys), *places("match"))


def lookup_48(fleet: Fleet, results: Results) -> None:
    """Six keys in each of eight tables, one call: 48 lookups, raw values."""
    assert fleet.view.shape.tables == 8
    six = [keys[:6] for keys in _often(fleet.keys)]
    fleet.view.lookup(six[0])
    results.time("48 lookups: 6 keys in 8 tables", timed(fleet.view.lookup, six), "lookup48_us")


def cold(fleet: Fleet, results: Results) -> None:
    """Requests nobody holds anything of: whether a worker is named, before and after filter and guard."""
    length = fleet.keys[0].size
    asked = random_keys(length * COLD, 6).reshape(-1, length)
    raw = sum(bool(fleet.view.lookup(keys).any()) for keys in asked)
    claimed = sum(bool(fleet.unit.match(keys).match_tokens.any()) for keys in asked)
    results.figure("cold requests with a false hit", raw / len(asked), "false_requests.raw")
    results.figure("cold requests with a wrong claim", claimed / len(asked), "false_hit_rate.filtered")


def _often(prompts: list[_T]) -> list[_T]:
    """In turns, so often that percentiles mean something."""
    return list(islice((one for _ in range(ASKED) for one in prompts), ASKED))
