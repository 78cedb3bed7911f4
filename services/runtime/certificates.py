"""Until when the certificates of `[tls]` are good: a metric, and a refusal at the start once they are not."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.runtime.settings import SettingsError, TlsSettings
from services.runtime.tls import client_context

_BLOCK: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
"""Tags of DER: the field that certificates of version 1 leave out; a date whose year has two digits."""


def certificate_ends(tls: TlsSettings | None) -> dict[str, float]:
    """When `cert` and `ca` end, in unix time. Reads and checks all three files; empty without TLS.

    Of a chain it is the certificate that ends first, of several CAs the first that has not ended yet.

    Errors: SettingsError naming the file that is missing, broken, not the others' or has expired.
    """
    if tls is None:
        return {}
    client_context(tls)
    now_s = time.time()
    cert, ca = _ends(tls.cert, "cert"), _ends(tls.ca, "ca")
    for field, end_s in (("cert", min(cert)), ("ca", max(ca))):
        if end_s <= now_s:
            date = datetime.fromtimestamp(end_s, UTC).isoformat(" ")
            raise SettingsError(
                f"{getattr(tls, field)} has expired on {date}: put a new one in its place "
                "(docs/install.md#keys-and-certificates)",
                field=f"tls.{field}",
            )
    return {"cert": min(cert), "ca": min(end_s for end_s in ca if end_s > now_s)}


class CertificateCollector(Collector):
    """What was read at the start: a file that was renewed since counts from the next one on."""

    def __init__(self, ends: Mapping[str, float]) -> None:
        """`ends`: as `certificate_ends` tells."""
        self._ends = ends

    def collect(self) -> Iterator[Metric]:
        """A series a file; none without TLS."""
        not_after = GaugeMetricFamily(
            "kvcompass_tls_not_after_seconds",
            "Unix time at which the certificates of a file of [tls], as read at the start, expire.",
            labels=["file"],
        )
        for file, end_s in self._ends.items():
            not_after.add_metric([file], end_s)
        yield not_after


def _ends(path: str, field: str) -> list[float]:
    """Of each certificate in the file. Precondition: OpenSSL has taken the file."""
    blocks = _BLOCK.findall(Path(path).read_text("latin-1"))
    if not blocks:
        raise SettingsError(f"{path} holds no BEGIN CERTIFICATE", field=f"tls.{field}")
    try:
        return [_not_after(ssl.PEM_cert_to_DER_cert(block)) for block in blocks]
    except (IndexError, ValueError) as error:
        raise SettingsError(
            f"{path} holds a certificate without a date of RFC 5280", field=f"tls.{field}"
        ) from error


def _not_after(certificate: bytes) -> float:
    """The second date of a certificate in DER (RFC 5280, 4.1), which the ssl module tells of CAs only."""
    ((_, whole),) = _elements(certificate)
    fields = _elements(_elements(whole)[0][1])
    if fields[0][0] == _VERSION:
        del fields[0]
    validity = fields[3][1]  # after the serial number, how it is signed and the issuer
    _, (tag, date) = _elements(validity)
    text = date.decode("ascii")
    if tag == _UTC_TIME:
        text = f"{19 if text >= '5' else 20}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element of DER that stands in `data`."""
    found, at = [], 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:
            octets = length - 0x80
            length, at = int.from_bytes(data[at : at + octets], "big"), at + octets
        found.append((tag, data[at : at + length]))
        at += length
    return found
