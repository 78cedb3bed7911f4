"""Settings of the relay process. Milliseconds here are real ones: the lab has scaled them already."""

import msgspec

from services.runtime.logs import LogLevel


class WireSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One direction of a region pair."""

    origin: str
    destination: str
    one_way_ms: float
    jitter_ms: float = 0.0
    """Standard deviation of a normal distribution; order is kept all the same."""


class LinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A listener that stands for `target` as seen from another region."""

    listen: str
    target: str
    origin: str
    """Region of whoever dials."""
    destination: str
    """Region of the target."""


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All wires and links of a lab."""

    control_address: str
    """host:port of /ready, /state and /partition/ORIGIN/DESTINATION."""
    wires: list[WireSettings]
    links: list[LinkSettings]
    random_seed: int = 0
    log_level: LogLevel = "info"
