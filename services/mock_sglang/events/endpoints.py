"""One endpoint a dp rank: the base's port plus the rank's number, as SGLang counts them."""

from services.runtime.settings import SettingsError


def rank_endpoint(base: str, rank: int, field: str) -> str:
    """The rank's endpoint. A wildcard port stays one; no endpoint stays none. Errors: SettingsError."""
    host, colon, port = base.rpartition(":")
    if not base or port in ("*", "0"):
        return base
    if not base.startswith("tcp://") or not colon or not port.isdigit():
        if rank == 0:
            return base
        raise SettingsError("several dp ranks need tcp://host:port", field=field)
    return f"{host}:{int(port) + rank}"


def port_of(endpoint: str) -> int | None:
    """The port of a bound tcp endpoint; None for others."""
    port = endpoint.rpartition(":")[2]
    return int(port) if endpoint.startswith("tcp://") and port.isdigit() else None
