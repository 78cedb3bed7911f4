"""Settings of the relay process. Milliseconds here are real ones: the lab has scaled them already."""

import msgspec

from kvcompass.wan import Link, read_link
from services.runtime.logs import LogLevel


class WireSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One direction of a region pair; what a link can do has the names of `kvcompass.wan.Link`."""

    origin: str
    destination: str
    one_way_ms: float
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    rate: float | None = None
    partition: bool = False

    def link(self) -> Link:
        """The link. Raises: WanError naming the wire and the field."""
        values = msgspec.structs.asdict(self)
        where = f"wires.{values.pop('origin')}.{values.pop('destination')}"
        return read_link(values, where)


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
