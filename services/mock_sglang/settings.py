"""Settings of one engine double; names follow SGLang's server arguments where it has them."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from kvcompass.engine_model import EngineConfig, EngineTiming, EvictionPolicy
from services.mock_sglang.profiles import PROFILES, ProfileName
from services.prompt.encoder import BUILTIN_CHAT_TEMPLATE, BUILTIN_TOKENIZER
from services.runtime.logs import LogLevel
from services.runtime.settings import SettingsError

DEFAULT_BOOTSTRAP_PORT = 8998
EvictionName = Literal["lru", "lfu", "fifo", "wa"]
RoleName = Literal["both", "prefill", "decode"]

MOST_MS = 1e6
"""Of a constant of the timing."""
_COUNT = (1, 1_000_000_000)
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "context_length": _COUNT,
    "page_size": _COUNT,
    "cache_tokens": _COUNT,
    "host_cache_tokens": (0, 1_000_000_000),
    "max_running_requests": _COUNT,
    "max_queued_requests": _COUNT,
    "stream_interval": _COUNT,
    "time_scale": (1e-6, 1e6),
    "health_delay_s": (0, 3_600),
    "event_ring_batches": _COUNT,
    "dp_size": (1, 256),
    "bootstrap_port": (0, 65_535),
    "transfer_timeout_s": (0.001, 3_600),
}
"""The least and the largest value of each number."""


class TimingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Model constants. The defaults are an A100 with an 8B model (docs/decisions/0601)."""

    prefill_ms_per_token: float = 0.067
    prefill_ms_per_token_squared: float = 1.38e-6
    decode_ms: float = 11.0
    decode_ms_per_context_token: float = 6.6e-5
    reload_ms_per_token: float = 0.00524

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not 0.0 <= getattr(self, field) <= MOST_MS:
                raise SettingsError(
                    f"timing.{field}: must be between 0 and {MOST_MS:g}", field=f"timing.{field}"
                )


class MockSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything an engine double needs; none of it names a fleet."""

    address: str = "127.0.0.1:30000"
    """host:port of the HTTP listener; port 0 picks a free one."""
    model: str
    """Served model name; requests for another get 404."""
    tokenizer: str = BUILTIN_TOKENIZER
    chat_template: str = BUILTIN_CHAT_TEMPLATE
    context_length: int = 131_072
    """Tokens, prompt and answer together."""
    page_size: int = 16
    """Tokens a KV block: the plan's block size. (SGLang's own default is 1: an event for every token.)"""
    cache_tokens: int = 244_140
    """KV capacity in tokens: 32 GB at 131,072 bytes a token."""
    host_cache_tokens: int = 0
    """Tokens that the host tier (HiCache) holds; 0 has none."""
    radix_eviction_policy: EvictionName = "lru"
    """Which block goes first; `wa` (workload-aware) is the paper's rival and not in SGLang."""
    max_running_requests: int = 64
    """Sequences that decode at once; the calibration covers 1 to 64."""
    max_queued_requests: int = 256
    """Requests that wait for their prefill. Over it: 503 with Retry-After."""
    stream_interval: int = 1
    """A streamed chunk for every so many tokens, the first and the last always."""
    time_scale: float = 1.0
    """Seconds of wall time for a second of model time."""
    health_delay_s: float = 1.0
    """How long /health takes: SGLang's generates a token and looks again a second later."""
    event_endpoint: str = ""
    """ZMQ endpoint that cache events are published on, bound here; empty publishes none."""
    replay_endpoint: str = ""
    """ZMQ endpoint that past batches are asked from; empty serves none."""
    event_topic: str = "kv-events"
    event_ring_batches: int = 10_000
    """Batches kept for replay, as in SGLang."""
    event_profile: ProfileName = "0.5.10"
    """The version of SGLang that is played: its events, its load routes, its /server_info."""
    load_publish_endpoint: str = ""
    """ZMQ endpoint that the load is published on (0.5.23); empty publishes none."""
    routes_off: tuple[str, ...] = ()
    """Paths that answer 404, as behind a gateway that passes only some on."""
    dp_size: int = 1
    """Data-parallel ranks. Each has an engine and a cache of its own, as large as the settings say, and
    publishes on the event, replay and load port + its number."""
    role: RoleName = "both"
    """`prefill` and `decode` are the halves of a pair: both get each request, with one `bootstrap_room`."""
    bootstrap_port: int = DEFAULT_BOOTSTRAP_PORT
    """Where a prefill engine tells that a room's cache is ready, on the host of `address`; 0 picks a free
    port."""
    transfer_timeout_s: float = 60.0
    """How long a decode engine waits for that, in wall time."""
    enable_cache_report: bool = True
    """Whether OpenAI routes tell `cached_tokens`. (SGLang's own default is not to.)"""
    lora_names: tuple[str, ...] = ()
    """Adapters that requests may name as `lora_path`; they only separate caches here."""
    fault_switches: bool = False
    """Whether PUT /kvcompass_mock/faults is served. Never where strangers reach the listener."""
    log_level: LogLevel = "info"
    timing: TimingSettings = TimingSettings()

    def __post_init__(self) -> None:
        for field, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, field) <= most:
                raise SettingsError(f"{field}: must be between {least} and {most}", field=field)
        if self.cache_tokens < self.page_size:
            raise SettingsError("cache_tokens: must hold at least one page", field="cache_tokens")
        if 0 < self.host_cache_tokens < self.page_size:
            raise SettingsError(
                "host_cache_tokens: must be 0 or hold at least one page", field="host_cache_tokens"
            )
        for path in self.routes_off:
            if not path.startswith("/"):
                raise SettingsError(f"routes_off: {path!r} is no path", field="routes_off")
        if self.replay_endpoint and not self.event_endpoint:
            raise SettingsError(
                "replay_endpoint: nothing to replay without event_endpoint", field="replay_endpoint"
            )
        if self.load_publish_endpoint and not PROFILES[self.event_profile].load_publisher:
            raise SettingsError(
                f"load_publish_endpoint: SGLang {self.event_profile} publishes no load",
                field="load_publish_endpoint",
            )

    def engine_config(self) -> EngineConfig:
        """The part that the engine model knows."""
        return EngineConfig(
            page_size=self.page_size,
            cache_tokens=self.cache_tokens,
            max_running=self.max_running_requests,
            max_queued=self.max_queued_requests,
            timing=EngineTiming(
                self.timing.prefill_ms_per_token,
                self.timing.prefill_ms_per_token_squared,
                self.timing.decode_ms,
                self.timing.decode_ms_per_context_token,
                self.timing.reload_ms_per_token,
            ),
            host_cache_tokens=self.host_cache_tokens,
            eviction=EvictionPolicy(self.radix_eviction_policy),
            tier_events=PROFILES[self.event_profile].tier_events,
        )
