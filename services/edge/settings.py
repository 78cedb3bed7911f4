"""Settings of an edge. Times are seconds unless the name says otherwise; every default says why."""

import math
from typing import Final

import msgspec

from kvcompass.roles.desk_bounds import DeskBounds
from kvcompass.roles.upstream_choice import Bootstrap, Upstream
from kvcompass.routing.names import PolicyName
from services.runtime.auth import ApiKeys
from services.runtime.plan_signature import check_plan_key
from services.runtime.settings import CommonSettings, SettingsError, check_range


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one request may take, and how many there may be."""

    body_bytes: int = 8 << 20
    """Largest request body; a longer one gets 413. A 128K-token prompt is about 0.6 MB of JSON."""
    header_bytes: int = 32 << 10
    """Largest sum of header names and values; more gets 431."""
    answer_bytes: int = 32 << 20
    """Largest answer held in memory: those that are not streamed."""
    concurrent_requests: int = 2_048
    """Requests in progress on the public listener; one more gets 503 with Retry-After."""
    attempts: int = 3
    """Workers tried for one request, all before its first byte, those at another region's edge included."""


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of every wait, in seconds."""

    connect_s: float = 2.0
    """To a worker or peer edge: six 300 ms round trips."""
    body_s: float = 30.0
    """To receive a request's body: 8 MiB over 2 Mbit/s."""
    first_byte_s: float = 120.0
    """From request to first byte of a stream, at one worker: a queue and the prefill of a long prompt."""
    answer_s: float = 300.0
    """The same for an answer that is not streamed and so comes whole: `first_byte_s`, then 6,000 tokens at
    30 ms. A worker that hangs costs this before another is tried; `total_s` has room for three."""
    idle_s: float = 60.0
    """Between two pieces of a started answer."""
    total_s: float = 900.0
    """A whole request, all attempts included: at least `first_byte_s` and `answer_s`."""
    drain_s: float = 20.0
    """After SIGTERM, for requests in progress. 0 ends them at once."""
    unready_s: float = 0.5
    """After SIGTERM, between saying not ready and closing the listeners, for balancers to notice. 0 where
    none asks."""
    suspect_s: float = 2.0
    """A peer edge that could not be reached is avoided for so long; 0 does not avoid it. (Workers: the plan's
    lease.)"""


class Relay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept for other edges of the region that follow this one."""

    log_groups: int = 131_072
    """Newest patch groups of all shards together: whoever falls behind gets a snapshot. A minute of 2,000
    changes a second; at most some 20 MB beside the bytes."""
    log_bytes: int = 32 << 20
    """Bytes of the same."""
    subscriptions: int = 64
    """Edges served at once, a shard; one more follows the units."""


class EdgeSettings(CommonSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TOML file a process. Addresses are those of the plan's `[[edge]]` unless overridden here."""

    id: str
    """This edge's id in the plan."""
    peer_key: str
    """Shared by the fleet's edges: bearer key of the listener between regions. At least 16 characters."""
    peer_key_file: str = ""
    """A file with the same, instead of it. Relative to the settings file."""
    engine_key: str = ""
    """Bearer key that the engines of this region demand (SGLang's `--api-key`); nobody else is sent it."""
    engine_key_file: str = ""
    """A file with the same, instead of it. Relative to the settings file."""
    policy: PolicyName = "kvcompass"
    """`regional` sees only its own region's workers, `round_robin` no caches: both are there to compare."""
    bootstrap: Bootstrap = "units"
    """Whom the first snapshot comes from: the `units`, or a `peer`, any edge of this region that serves, and
    where none does the units. With it a restart costs the WAN no snapshot; `units` needs nobody else."""
    upstream: Upstream = "units"
    """Whom the index is followed from then on: the `units`, or an `edge`, the first one of the region before
    this one in the plan that is alive; so one WAN stream a region and shard feeds all its edges. With it
    `bootstrap = "units"` works, but each start costs the WAN a snapshot: set "peer" too. Falls back to the
    units by itself (docs/edge-to-edge.md)."""
    lab_mode: bool = False
    """Anonymous callers belong to group `default` and see what an admin sees. Never in production."""
    api_keys: dict[str, str] = msgspec.field(default_factory=dict)
    """Hex SHA-256 of an API key -> sharing group of its holder."""
    admin_keys: list[str] = msgspec.field(default_factory=list)
    """Hex SHA-256 of keys that may ask `/v1/kvcompass/*` and see `x-kvcompass-*` headers."""
    listen: str = ""
    """host:port to bind instead of the plan's `address` (behind a proxy, or all interfaces)."""
    peer_listen: str = ""
    """The same for `peer_address`."""
    grpc_listen: str = ""
    """The same for `grpc_address`."""
    random_seed: int = 0
    """Of the jitter between reconnections."""
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    relay: Relay = Relay()


_TIMEOUTS: Final = dict.fromkeys(("drain_s", "unready_s", "suspect_s"), (0, math.inf))


def relay_bounds(settings: EdgeSettings, shards: int) -> DeskBounds:
    """The bounds of one shard's relay."""
    return DeskBounds(
        log_groups=max(1, settings.relay.log_groups // shards),
        log_bytes=max(1, settings.relay.log_bytes // shards),
        subscriptions=settings.relay.subscriptions,
    )


def check_settings(settings: EdgeSettings) -> None:
    """Errors: SettingsError for what the types cannot say."""
    if len(settings.peer_key) < 16:
        raise SettingsError("needs at least 16 characters", field="peer_key")
    check_plan_key(settings.plan_key)
    if not settings.lab_mode and not settings.api_keys and not settings.admin_keys:
        raise SettingsError(
            "no key is known and lab_mode is off, so nobody could call: add api_keys", field="api_keys"
        )
    ApiKeys(settings.api_keys, "api_keys")
    ApiKeys(dict.fromkeys(settings.admin_keys, "admin"), "admin_keys")
    check_range("limits", settings.limits)
    check_range("relay", settings.relay)
    timeouts = settings.timeouts
    check_range("timeouts", timeouts, _TIMEOUTS)
    for name in ("first_byte_s", "answer_s"):
        one_s = getattr(timeouts, name)
        if timeouts.total_s < one_s:
            raise SettingsError(
                f"must be at least {name}, {one_s:g}, which it would cut off: raise it, or lower {name}",
                field="timeouts.total_s",
            )
