"""Who is calling: API keys to sharing groups, and who may look behind the curtain."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.plan.model import Plan
from services.edge.requests.errors import forbidden, unauthorized
from services.edge.settings import EdgeSettings
from services.runtime.auth import ApiKeys, bearer_token
from services.runtime.settings import SettingsError

DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    group: str
    """The sharing group, from the key: a client never chooses its own."""
    admin: bool
    """May ask `/v1/kvcompass/*` and sees the `x-kvcompass-*` headers."""


class Callers:
    """Knows the hashed keys of the settings. Errors at construction: SettingsError."""

    def __init__(self, settings: EdgeSettings, plan: Plan) -> None:
        groups = {group.id for group in plan.sharing_groups}
        for i, group in enumerate(settings.api_keys.values()):
            if group not in groups:
                message = f"sharing group {group!r} is not in the plan; it has {', '.join(sorted(groups))}"
                raise SettingsError(message, field=f"api_keys[{i}]")
        self._keys = ApiKeys(settings.api_keys, "api_keys")
        self._admins = ApiKeys(dict.fromkeys(settings.admin_keys, "admin"), "admin_keys")
        self._open = settings.lab_mode
        self._fallback = DEFAULT_GROUP if DEFAULT_GROUP in groups else plan.sharing_groups[0].id

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller of a request. Errors: ApiError 401."""
        token = _token(headers)
        group = self._keys.lookup(token) if token else None
        admin = self._open or (token is not None and self._admins.lookup(token) is not None)
        if group is None and not admin:
            raise unauthorized(presented=token is not None)
        return Caller(group or self._fallback, admin)

    def require_admin(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Errors: ApiError 401, or 403 for a key that is known but not an admin's."""
        caller = self.identify(headers)
        if not caller.admin:
            raise forbidden()
        return caller


def require_peer(headers: Mapping[bytes, bytes], peer_key: str) -> None:
    """Errors: ApiError 401 unless the bearer token is the fleet's peer key."""
    token = _token(headers)
    if token is None or not hmac.compare_digest(token.encode(), peer_key.encode()):
        raise unauthorized(presented=token is not None)


def _token(headers: Mapping[bytes, bytes]) -> str | None:
    header = headers.get(b"authorization")
    return bearer_token(header.decode("latin-1") if header is not None else None)
