"""A fleet's certificate authority, and `[tls]` of its components as their settings files name it."""

from datetime import UTC, datetime
from pathlib import Path

import trustme

from services.runtime.settings import CommonSettings, TlsSettings, load_settings


class FleetAuthority:
    """Certificates of one CA, in a folder of its own; components stand on 127.0.0.1."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._authority = trustme.CA()
        home.mkdir()
        self._authority.cert_pem.write_to_path(home / "ca.pem")

    def tls(self, component: str, *, ends: datetime | None = None) -> TlsSettings:
        """A certificate for a component, as files that its settings file names relative to itself."""
        begins = datetime(1990, 1, 1, tzinfo=UTC)
        leaf = self._authority.issue_cert("127.0.0.1", not_before=begins, not_after=ends)
        leaf.private_key_pem.write_to_path(self._home / f"{component}-key.pem")
        leaf.cert_chain_pems[0].write_to_path(self._home / f"{component}.pem")
        settings = self._home / f"{component}.toml"
        settings.write_text(
            f'plan = "p"\n[tls]\ncert = "{component}.pem"\nkey = "{component}-key.pem"\nca = "ca.pem"\n'
        )
        tls = load_settings(CommonSettings, settings).tls
        assert tls is not None
        return tls
