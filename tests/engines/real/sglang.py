"""A real SGLang server on CPUs, with a random model of two layers."""

import json
from typing import Final, Literal

from tests.engines.engine import CACHE_TOKENS, CONTEXT_TOKENS, MODEL, PAGE_TOKENS, RING_BATCHES
from tests.engines.real.server import Server

_BINDS_WHEN_TOLD: Final = (0, 5, 23)
"""Earlier publishers of events listen on all interfaces, or connect."""


class Sglang(Server):
    """One installed version. Its events listen on all interfaces before 0.5.23."""

    kind: Literal["sglang"] = "sglang"
    page_tokens = PAGE_TOKENS
    flush_path = "/flush_cache"
    speaks_idle = True

    def command(self) -> list[str]:
        """What is started. docs/deploy-engines.md has the reasons of the options that operators give, too."""
        address, _, port = self.place.address.rpartition(":")
        return [
            str(self.release.python),
            *("-m", "sglang.launch_server"),
            *("--model-path", str(self.model), "--served-model-name", MODEL),
            *("--host", address, "--port", port),
            *("--page-size", str(PAGE_TOKENS), "--context-length", str(CONTEXT_TOKENS)),
            *("--max-total-tokens", str(CACHE_TOKENS), "--mem-fraction-static", "0.5"),
            *("--kv-events-config", json.dumps(self._events())),
            *("--enable-cache-report", "--enable-metrics"),
            # Without a GPU, and without weights.
            *("--device", "cpu", "--load-format", "dummy", "--dtype", "float32"),
            *("--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
            *("--grammar-backend", "none", "--disable-cuda-graph", "--disable-overlap-schedule"),
            "--skip-server-warmup",
        ]

    def _events(self) -> dict[str, object]:
        told = self.release.version_numbers >= _BINDS_WHEN_TOLD
        events, replay = self.place.events, self.place.replay
        if not told:
            events, replay = (f"*:{address.rpartition(':')[2]}" for address in (events, replay))
        return {
            "publisher": "zmq",
            "endpoint": f"tcp://{events}",
            "replay_endpoint": f"tcp://{replay}",
            "topic": "kv-events",
            "buffer_steps": RING_BATCHES,
        } | ({"bind": True} if told else {})
