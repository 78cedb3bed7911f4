"""Readers of single TOML values: each returns the value or raises `BadValueError` with what was expected."""

import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any, Final

Reader = Callable[[object], Any]

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_PORT_MAX: Final = 65_535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class BadValueError(Exception):
    """A value is not what its field takes."""


def text(value: object) -> str:
    """Read a string that is not empty."""
    if not isinstance(value, str):
        raise BadValueError(f"expected a string, found {_describe(value)}")
    if not value:
        raise BadValueError("must not be empty")
    return value


def any_text(value: object) -> str:
    """Read a string, empty or not."""
    return value if value == "" else text(value)


def boolean(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise BadValueError(f"expected true or false, found {_describe(value)}")
    return value


def identifier(value: object) -> str:
    """Read a name that is safe in headers, metric labels and file names."""
    name = text(value)
    if not is_identifier(name):
        raise BadValueError(
            f"{name!r}: use up to 63 letters, digits, '.', '_' and '-', first a letter or digit"
        )
    return name


def is_identifier(name: str) -> bool:
    """Whether something of a plan may have that name."""
    return _ID.fullmatch(name) is not None


def integer(least: int, most: int) -> Reader:
    """Return a reader of integers in least..most."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValueError(f"expected an integer, found {_describe(value)}")
        if not least <= value <= most:
            raise BadValueError(f"{value} is not in {least}..{most}")
        return value

    return read


def integers(least: int, most: int, *, most_items: int) -> Reader:
    """Return a reader of arrays of at most `most_items` integers in least..most; the value is a tuple."""
    item = integer(least, most)

    def read(value: object) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise BadValueError(f"expected an array of integers, found {_describe(value)}")
        if len(value) > most_items:
            raise BadValueError(f"{len(value)} items are more than {most_items}")
        return tuple(map(item, value))

    return read


def number(
    *, above: float = -math.inf, least: float = -math.inf, most: float, or_zero: bool = False
) -> Reader:
    """Return a reader of numbers (integers are taken as floats), and of 0 if it may be.

    Others are greater than `above`, where it is given, and in least..most.
    """
    low = f"greater than {above:g}" if above > least else f"at least {least:g}"
    if or_zero:
        low = f"{above:g}, or more"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValueError(f"expected a number, found {_describe(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise BadValueError(f"{value} is not a finite number")
        if not ((above < value and least <= value <= most) or (or_zero and value == 0)):
            raise BadValueError(f"{value} must be {low} and at most {most:g}")
        return float(value)

    return read


def choice(*allowed: str | int) -> Reader:
    """Return a reader of one of a few values."""

    def read(value: object) -> object:
        if type(value) not in (str, int) or value not in allowed:
            raise BadValueError(f"{value!r} is not one of {', '.join(map(repr, allowed))}")
        return value

    return read


def address(value: object) -> str:
    """Read a `host:port` that others dial; an IPv6 host is in brackets."""
    given = text(value)
    host, _ = _host_and_port(given, given)
    if _is_every_address(host):
        raise BadValueError(
            f"{given!r}: others dial it: write a name or an address of this host; what it binds is in its "
            "settings"
        )
    return given


def optional_address(value: object) -> str:
    """Read `host:port`, or the empty string for none."""
    return value if value == "" else address(value)


def worker_url(value: object) -> str:
    """Read `http://host[:port]` or https, without a path."""
    given = text(value)
    scheme, separator, rest = given.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        raise BadValueError(f"{given!r}: expected http://host:port or https://host:port")
    if "/" in rest or "?" in rest or "#" in rest or "@" in rest:
        raise BadValueError(f"{given!r}: give only scheme, host and port, without a path or a trailing slash")
    listener(given)
    return given


def endpoint(value: object) -> str:
    """Read a ZMQ endpoint to connect to: `tcp://host:port` or `ipc://path`."""
    given = text(value)
    scheme, _, rest = given.partition("://")
    if scheme == "ipc" and rest:
        return given
    if scheme != "tcp":
        raise BadValueError(f"{given!r}: expected tcp://host:port or ipc://path")
    _host_and_port(rest, given)
    return given


def optional_endpoint(value: object) -> str:
    """Read a ZMQ endpoint, or the empty string for none."""
    return value if value == "" else endpoint(value)


def listener(given: str) -> str:
    """Return the place an address, URL or endpoint names, one spelling for all that mean the same."""
    scheme, separator, rest = given.partition("://")
    if not separator:
        scheme, rest = "", given
    if scheme == "ipc":
        return given
    if scheme in _DEFAULT_PORTS and re.search(r":\d*$", rest) is None:
        rest = f"{rest}:{_DEFAULT_PORTS[scheme]}"
    host, port = _host_and_port(rest, given)
    return f"{host.lower()}:{port}"


def _host_and_port(place: str, given: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    if not _HOST.fullmatch(host):
        raise BadValueError(f"{given!r}: expected host:port (an IPv6 host in brackets)")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _PORT_MAX):
        raise BadValueError(f"{given!r}: {port!r} is not a port in 1..{_PORT_MAX}")
    return host, int(port)


def _is_every_address(host: str) -> bool:
    """Whether it is what a listener binds to be reached at all addresses of its host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _describe(value: object) -> str:
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array"}
    return kinds.get(type(value), "a table" if isinstance(value, dict) else type(value).__name__)
