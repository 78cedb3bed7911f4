"""A real vLLM server on CPUs, with a random model of two layers."""

import json
from typing import Literal

from tests.engines.engine import CACHE_TOKENS, CONTEXT_TOKENS, MODEL, RING_BATCHES
from tests.engines.real.server import Server


class Vllm(Server):
    """One installed version. Its events listen on all interfaces."""

    kind: Literal["vllm"] = "vllm"
    page_tokens = 32
    """Attention on CPUs wants multiples of that."""
    flush_path = "/reset_prefix_cache"
    speaks_idle = False
    """Events are taken from the cache in the step of a request."""

    def command(self) -> list[str]:
        """What is started. docs/deploy-engines.md has the reasons of the options that operators give, too."""
        address, _, port = self.place.address.rpartition(":")
        return [
            str(self.release.python),
            *("-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(self.model), "--served-model-name", MODEL),
            *("--host", address, "--port", port),
            *("--block-size", str(self.page_tokens), "--max-model-len", str(CONTEXT_TOKENS)),
            *("--num-gpu-blocks-override", str(CACHE_TOKENS // self.page_tokens)),
            *("--max-num-batched-tokens", str(CONTEXT_TOKENS)),
            *("--kv-events-config", json.dumps(self._events())),
            "--enable-prompt-tokens-details",
            *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        ]

    def _events(self) -> dict[str, object]:
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.place.events.rpartition(':')[2]}",
            "replay_endpoint": f"tcp://*:{self.place.replay.rpartition(':')[2]}",
            "topic": "kv-events",
            "buffer_steps": RING_BATCHES,
        }
