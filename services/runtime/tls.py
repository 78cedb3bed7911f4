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


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """For a listener that demands a certificate of the fleet's CA."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """For a dialler that presents its certificate."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    return context


def grpc_server_credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    """gRPC server side of mutual TLS."""
    pair = (_read(tls.key, "key"), _read(tls.cert, "cert"))
    return grpc.ssl_server_credentials(
        [pair], root_certificates=_read(tls.ca, "ca"), require_client_auth=True
    )


def grpc_channel_credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    """gRPC client side of mutual TLS."""
    return grpc.ssl_channel_credentials(_read(tls.ca, "ca"), _read(tls.key, "key"), _read(tls.cert, "cert"))
