"""Mutual TLS between components, for HTTP (ssl contexts) and gRPC (credentials)."""

import ssl
from pathlib import Path

import grpc

from services.runtime.settings import SettingsError, TlsSettings


def _read(path: str, field: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", field=f"tls.{field}") from error


def _check_certificates(path: str, field: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingsError(
            f"{path} holds no certificate in PEM: {error.reason}", field=f"tls.{field}"
        ) from error


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """For a listener that demands a certificate of the fleet's CA. Errors: SettingsError."""
    context = _context(tls, ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """For a dialler that presents its certificate. Errors: SettingsError."""
    return _context(tls, ssl.Purpose.SERVER_AUTH)


def _context(tls: TlsSettings, purpose: ssl.Purpose) -> ssl.SSLContext:
    for field in ("ca", "cert", "key"):
        _read(getattr(tls, field), field)
    for field in ("ca", "cert"):
        _check_certificates(getattr(tls, field), field)

    def password() -> str:
        raise SettingsError(f"{tls.key} is encrypted: give one without a passphrase", field="tls.key")

    context = ssl.create_default_context(purpose, cafile=tls.ca)
    try:
        context.load_cert_chain(tls.cert, tls.key, password)
    except ssl.SSLError as error:
        raise SettingsError(
            f"{tls.key} holds no key in PEM, or another than that of {tls.cert}: {error.reason or error}",
            field="tls.key",
        ) from error
    return context


def grpc_server_credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    """gRPC server side of mutual TLS. Errors: SettingsError; gRPC itself would blame the address."""
    server_context(tls)
    pair = (_read(tls.key, "key"), _read(tls.cert, "cert"))
    return grpc.ssl_server_credentials(
        [pair], root_certificates=_read(tls.ca, "ca"), require_client_auth=True
    )


def grpc_channel_credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    """gRPC client side of mutual TLS."""
    return grpc.ssl_channel_credentials(_read(tls.ca, "ca"), _read(tls.key, "key"), _read(tls.cert, "cert"))
