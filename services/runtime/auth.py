"""API keys. Settings hold SHA-256 hashes only; keys are random and long, so a slow hash buys nothing."""

import hashlib
import hmac
import re
from collections.abc import Mapping

from services.runtime.settings import SettingsError

_HASH = re.compile(r"[0-9a-f]{64}")


def hash_api_key(key: str) -> str:
    """Hex SHA-256 of a key, as settings hold it."""
    return hashlib.sha256(key.encode()).hexdigest()


class ApiKeys:
    """Maps a presented key to what it stands for (a sharing group, a role), comparing in constant time.

    Errors at construction: SettingsError, which names an entry by its number in the setting `field`.
    """

    def __init__(self, hashes: Mapping[str, str], field: str) -> None:
        for i, digest in enumerate(hashes):
            if not _HASH.fullmatch(digest):
                # It may be a key in clear, so nothing of it is shown.
                message = "not a SHA-256 in hex, 64 of 0-9 a-f; make one with `kvcompass hash-key`"
                raise SettingsError(message, field=f"{field}[{i}]")
        self._hashes = dict(hashes)

    def lookup(self, key: str) -> str | None:
        """What the key stands for, or None. Takes the same time whichever key is presented."""
        presented = hash_api_key(key)
        found: str | None = None
        for digest, meaning in self._hashes.items():
            if hmac.compare_digest(digest, presented):
                found = meaning
        return found


def bearer_token(header: str | None) -> str | None:
    """The token of an `Authorization: Bearer` header, or None."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
