"""One direction between two regions, and how its figures are read from TOML, JSON or a command line."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvcompass.spelling import unknown_key
from kvcompass.wan.errors import WanError


@dataclass(frozen=True, slots=True)
class Link:
    """What happens to a packet from one region to another.

    A packet arrives when it has travelled, not before the one sent ahead of it has arrived, and once its
    bytes have passed at `rate`. Only `reorder` breaks the order.
    """

    one_way_ms: float
    """Time a packet travels, ms."""
    jitter_ms: float = 0.0
    """Standard deviation of that time, ms; it is normal and never below 0."""
    loss: float = 0.0
    """Share of packets that are lost, each by itself."""
    duplicate: float = 0.0
    """Share of packets that arrive twice."""
    reorder: float = 0.0
    """Share of packets that travel in no time and so overtake the others."""
    rate: float | None = None
    """Mbit/s that pass; None: any number."""
    partition: bool = False
    """Nothing passes."""


LINK_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Link))

_BOUNDS: Final = {
    "one_way_ms": (0.0, 10_000.0),
    "jitter_ms": (0.0, 1_000.0),
    "loss": (0.0, 1.0),
    "duplicate": (0.0, 1.0),
    "reorder": (0.0, 1.0),
    "rate": (0.001, 10_000.0),
}
"""The least and the largest value of each number. The delay is bounded so that queues are; of less than a
kbit/s the kernel's netem makes no limit at all."""


def read_link(values: Mapping[str, object], where: str) -> Link:
    """The link that `values` describe; `where` is their TOML path. `one_way_ms` must be among them.

    Raises:
        WanError: A key is unknown, or a value is not what its field takes.
    """
    if "one_way_ms" not in values:
        raise WanError("missing; give the one-way latency in ms", field=f"{where}.one_way_ms")
    return changed_link(Link(one_way_ms=0.0), values, where)


def changed_link(link: Link, values: Mapping[str, object], where: str) -> Link:
    """`link` with some fields replaced; `rate` may be None, for no limit.

    Raises:
        WanError: As `read_link`.
    """
    read: dict[str, Any] = {name: _read(name, value, f"{where}.{name}") for name, value in values.items()}
    changed = dataclasses.replace(link, **read)
    if changed.reorder > 0.0 and changed.one_way_ms == 0.0:
        raise WanError("nothing can be overtaken where one_way_ms is 0", field=f"{where}.reorder")
    return changed


def _read(name: str, value: object, where: str) -> float | bool | None:
    if name == "partition":
        if not isinstance(value, bool):
            raise WanError(f"{value!r} is neither true nor false", field=where)
        return value
    if name not in _BOUNDS:
        raise WanError(unknown_key(name, LINK_FIELDS), field=where)
    if name == "rate" and value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise WanError(f"{value!r} is not a number", field=where)
    if name == "rate" and value == 0.0:
        raise WanError("nothing passes at 0 Mbit/s; say partition = true", field=where)
    least, most = _BOUNDS[name]
    if not least <= value <= most:
        raise WanError(f"{value!r:.40} is not in {least:g}..{most:g}", field=where)
    return float(value)
