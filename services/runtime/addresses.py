"""host:port addresses, IPv6 in brackets."""

from kvcompass.errors import KVCompassError


class AddressError(KVCompassError):
    """Not a host:port."""


def split_address(address: str) -> tuple[str, int]:
    """`127.0.0.1:80` -> ("127.0.0.1", 80); `[::1]:80` -> ("::1", 80). Errors: AddressError."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise AddressError(f"{address!r} is not host:port", field="address")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """The inverse of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
