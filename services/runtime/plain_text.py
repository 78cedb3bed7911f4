"""Where components may talk without TLS: on one machine, and where the operator said so."""

from ipaddress import ip_address
from typing import Literal

from services.runtime.addresses import split_address
from services.runtime.settings import CommonSettings, SettingsError, TlsSettings


def check_plain_text(address: str, tls: TlsSettings | None, *, insecure: bool) -> None:
    """Call it before listening on, or dialling, an address. Errors: SettingsError, AddressError.

    Without TLS nothing tells a component from a stranger: whoever connects may withdraw a worker's keys or
    report loads in its name.
    """
    if tls is None and not insecure and not is_loopback(split_address(address)[0]):
        raise SettingsError(
            f"{address} is not on loopback, and without TLS whoever reaches it counts as part of the fleet: "
            "add [tls] with cert, key and ca, or set insecure = true if the network keeps strangers out",
            field="tls",
        )


def transport_mode(settings: CommonSettings) -> Literal["mutual_tls", "plain_text", "plain_text_loopback"]:
    """The effective mode of the connections between components, for a service's first line of log."""
    if settings.tls is not None:
        return "mutual_tls"
    return "plain_text" if settings.insecure else "plain_text_loopback"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine only. A name other than localhost is not asked for."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
