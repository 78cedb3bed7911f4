"""Drives the caches of an installed SGLang at random, without a server, and records what they say.

    PYTHON-OF-THE-ENGINE drive.py VERSION STEPS FOLDER SEED...

Runs in the engine's environment: nothing of ours is imported. The caches and the publisher of events are the
engine's own; what moves bytes between GPU and host is played. FOLDER gets a file KIND-SEED each, in msgpack:
`{"payloads": [bytes, ...], "steps": [[batches so far, [[tokens, device, host], ...]], ...]}`, device and host
being how many tokens of the prompt the cache itself finds in each, from the first token on.
"""

import importlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import zmq

PAGE_TOKENS = 4
PROMPT_PAGES = 24
POOL = 12
"""Prompts asked about; new ones push out the oldest."""
_END = b"\xff" * 8
_PATIENCE_S = 60.0


class Cache(Protocol):
    """A version's cache, as a scheduler would use it. Tokens are whole pages."""

    def store(self, tokens: list[int], *, reload: bool) -> None:
        """Prefills a prompt, reusing what is there; what is on the host is loaded back, or computed again."""

    def found(self, tokens: list[int]) -> tuple[int, int]:
        """How many tokens from the first on are on the GPU, and how many after them on the host."""

    def evict(self, tokens: int) -> None:
        """Makes room on the GPU."""

    def settle(self) -> None:
        """Lets copies under way end."""

    def flush(self) -> None:
        """Empties it."""

    def events(self) -> list[Any]:
        """What it has to say since the last call."""


class Recording:
    """What a cache says, by the engine's own publisher, and what it holds, by its own lookup."""

    def __init__(self, directory: str) -> None:
        # Of the engine: importable here only.
        from sglang.srt.disaggregation.kv_events import (  # type: ignore[import-not-found]
            EventPublisherFactory,
            KVEventBatch,
        )

        self._batch = KVEventBatch
        self._replay_at = f"ipc://{directory}/replay"
        config = {
            "publisher": "zmq",
            "endpoint": f"ipc://{directory}/events",
            "replay_endpoint": self._replay_at,
            "topic": "kv-events",
            "buffer_steps": 1_000_000,
        }
        self._publisher = EventPublisherFactory.create(json.dumps(config), 0)
        self._published = 0
        self.steps: list[tuple[int, list[tuple[list[int], int, int]]]] = []

    def take(self, cache: Cache, prompts: list[list[int]]) -> None:
        """Publishes what the cache has to say, then asks it for the prompts."""
        self._publish(cache)
        found = [(prompt, *cache.found(prompt)) for prompt in prompts]
        self._publish(cache)
        self.steps.append((self._published, found))

    def _publish(self, cache: Cache) -> None:
        events = cache.events()
        if events:
            self._publisher.publish(self._batch(ts=time.time(), events=events))
            self._published += 1

    def end(self) -> list[bytes]:
        """All that was published, from the publisher's own replay."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            payloads = list(self._replayed())
            if len(payloads) == self._published:
                self._publisher.shutdown()
                return payloads
            assert time.monotonic() < deadline, f"{len(payloads)} of {self._published} batches"
            time.sleep(0.1)

    def _replayed(self) -> Iterator[bytes]:
        socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        try:
            socket.connect(self._replay_at)
            socket.send_multipart([b"", bytes(8)])
            for expected in itertools.count():
                assert socket.poll(_PATIENCE_S * 1_000), "no replay"
                number, payload = socket.recv_multipart()[-2:]
                if number == _END:
                    return
                assert int.from_bytes(number, "big") == expected
                yield payload
        finally:
            socket.close(linger=0)


def drive(cache: Cache, draw: random.Random, steps: int, recording: Recording) -> None:
    """Random requests and room made for them; after each, some prompts are asked about."""
    prompts: list[list[int]] = []
    recording.take(cache, [])
    for _ in range(steps):
        match draw.choices(("store", "again", "evict", "settle", "flush"), (50, 20, 20, 15, 1))[0]:
            case "store":
                prompts.append(_prompt(draw, prompts))
                del prompts[:-POOL]
                cache.store(prompts[-1], reload=draw.random() < 0.8)
            case "again" if prompts:
                cache.store(draw.choice(prompts), reload=draw.random() < 0.8)
            case "evict":
                cache.evict(draw.randint(1, PROMPT_PAGES) * PAGE_TOKENS)
            case "settle":
                cache.settle()
            case "flush":
                cache.settle()
                cache.flush()
        recording.take(cache, draw.sample(prompts, min(4, len(prompts))))


def _prompt(draw: random.Random, prompts: list[list[int]]) -> list[int]:
    """New tokens after the beginning of a prompt that was there before, or after none."""
    pages = draw.randint(1, PROMPT_PAGES)
    shared: list[int] = []
    if prompts and draw.random() < 0.7:
        before = draw.choice(prompts)
        shared = before[: draw.randint(0, len(before) // PAGE_TOKENS) * PAGE_TOKENS]
    fresh = max(1, pages - len(shared) // PAGE_TOKENS) * PAGE_TOKENS
    return shared + [draw.randrange(1_000) for _ in range(fresh)]


def main() -> None:
    """Entry point."""
    version, steps, folder, *seeds = sys.argv[1:]
    caches = importlib.import_module(f"sglang_{version.replace('.', '_')}").CACHES
    for (kind, make), seed in itertools.product(caches.items(), seeds):
        with tempfile.TemporaryDirectory() as directory:
            recording = Recording(directory)
            drive(make(PAGE_TOKENS), random.Random(int(seed)), int(steps), recording)
            recorded = {"payloads": recording.end(), "steps": recording.steps}
        (Path(folder) / f"{kind}-{seed}").write_bytes(msgspec.msgpack.encode(recorded))


if __name__ == "__main__":
    main()
