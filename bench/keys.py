"""Cost of keys: one pass over a prompt at several lengths, and an agent's steps. Prints a table and JSON.

python -m bench.keys --tokens 4096 --json out/bench/keys.json
"""

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from timeit import repeat

import numpy as np

from kvcompass.keys import PrefixHasher, namespace, prefix_keys, shard_of
from kvcompass.levels import ladder
from kvcompass.plan.model import LengthRule, ModelIdentity

REPEATS = 500
CALLS = 20


def best_us(call: Callable[[], object]) -> float:
    """Microseconds a call, the best of many rounds: the machine's noise only ever adds."""
    return min(repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def measure(tokens: int) -> dict[str, float]:
    """Microseconds of each step for a prompt of `tokens` tokens."""
    prompt = np.random.default_rng(1).integers(0, 128_256, tokens, dtype=np.int32)
    space = namespace(ModelIdentity("model", "tokenizer", "template", 16, 2 * tokens), "")
    raw = prompt.tobytes()
    results = {"sha256_alone_us": best_us(lambda: hashlib.sha256(raw).digest())}
    for name, lengths in (
        ("6", np.linspace(tokens / 6, tokens, 6).astype(np.int32)),
        ("ladder", np.array(ladder(LengthRule(), tokens), dtype=np.int32)),
        ("28", np.linspace(tokens / 28, tokens, 28).astype(np.int32)),
    ):
        results[f"keys_at_{name}_lengths_us"] = best_us(lambda at=lengths: prefix_keys(space, prompt, at))
    keys = prefix_keys(space, prompt, np.array(ladder(LengthRule(), tokens), dtype=np.int32))
    results["shard_of_ladder_us"] = best_us(lambda: shard_of(keys, 2))
    hasher, block = PrefixHasher(space), prompt[:16]
    results["agent_feed_block_us"] = best_us(lambda: hasher.feed(block))
    results["agent_key_us"] = best_us(hasher.key)
    results["agent_copy_us"] = best_us(hasher.copy)
    return results


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=4_096)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = measure(options.tokens)
    for name, value in results.items():
        print(f"{name:32s} {value:12.4f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"tokens": options.tokens} | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
