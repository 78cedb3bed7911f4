"""gRPC channels and servers for a WAN: keepalive, capped backoff, windows for 300 ms round trips."""

import re
import socket
from collections.abc import Callable, Mapping
from typing import Final

import grpc
import grpc.aio

from services.runtime.addresses import join_address, split_address
from services.runtime.plain_text import check_plain_text
from services.runtime.settings import SettingsError, TlsSettings
from services.runtime.tls import grpc_channel_credentials, grpc_server_credentials

MAX_MESSAGE_BYTES = 16 << 20

_WINDOWS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.lookahead_bytes", 8 << 20),
    ("grpc.http2.bdp_probe", 1),
]
PROMPT_ANSWER_MS: Final = 2_000
"""For a ping, where nothing else shows that the other side stands still: an agent's units and edges."""
PATIENT_ANSWER_MS: Final = 9_000
"""For a ping that waits behind a snapshot: what buffers on the way hold must have left by then. A loopback
relay's hold 4 MB (0.45 MB/s); those of TCP alone two round trips, queues included."""

_KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 1_000),
    # As TCP's user timeout: on a way that confirms nothing for so long a connection is broken. A process that
    # stands still does not show by it, for its kernel confirms what comes.
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_CLIENT: list[tuple[str, int]] = [
    *_WINDOWS,
    *_KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 200),
    # The shortest time that an attempt to connect is given: TCP's and HTTP/2's handshakes over 300 ms.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    # `connect_via` says what goes where. The environment's proxy is for others, and would take loopback too.
    ("grpc.enable_http_proxy", 0),
]
_SERVER: list[tuple[str, int]] = [
    *_WINDOWS,
    *_KEEPALIVE,
    ("grpc.http2.ping_timeout_ms", PATIENT_ANSWER_MS),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]


RPCS_MOST = 4_096
"""Streams and calls that a server serves at once; one more is answered RESOURCE_EXHAUSTED."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Dialer:
    """Knows where a plan address is really reached. `connect_via` maps host:port to host:port.

    Engines are dialled by `url` as the plan names them; components by `http_base` and `channel`, with TLS
    where there is any, and beyond loopback only then unless `insecure`.
    """

    def __init__(
        self,
        connect_via: Mapping[str, str],
        tls: TlsSettings | None = None,
        *,
        insecure: bool = False,
        answer_ms: int = PATIENT_ANSWER_MS,
    ) -> None:
        """`answer_ms`: a channel whose ping is not answered within it is broken, whatever else comes."""
        self._options = [*_CLIENT, ("grpc.http2.ping_timeout_ms", answer_ms)]
        self._via = dict(connect_via)
        self._tls = tls
        self._insecure = insecure

    def resolve(self, address: str) -> str:
        """The address to dial for a plan address."""
        return self._via.get(address, address)

    def url(self, url: str) -> str:
        """The URL to use for one of the plan: an engine's `url`, `events` or `replay`; none has a path.

        `connect_via` is asked for host:port also where http or https leave the port out; ipc has neither.
        """
        scheme, separator, place = url.partition("://")
        if scheme in _DEFAULT_PORTS and not re.search(r":\d+$", place):
            place = f"{place}:{_DEFAULT_PORTS[scheme]}"
        via = self._via.get(place)
        return url if via is None else f"{scheme}{separator}{via}"

    def component(self, address: str) -> str:
        """The address to dial for a component's. Errors: SettingsError where that would need TLS."""
        target = self.resolve(address)
        check_plain_text(target, self._tls, insecure=self._insecure)
        return target

    def http_base(self, address: str) -> str:
        """Base URL for HTTP to a component. Errors: SettingsError as `component`."""
        return f"{'https' if self._tls else 'http'}://{self.component(address)}"

    def channel(self, address: str) -> grpc.aio.Channel:
        """A new channel; the caller closes it. Connecting is lazy and never blocks here.

        Errors: SettingsError as `component`.
        """
        target = self.component(address)
        if self._tls is None:
            return grpc.aio.insecure_channel(target, options=self._options)
        return grpc.aio.secure_channel(target, grpc_channel_credentials(self._tls), options=self._options)


async def serve_grpc(
    register: Callable[[grpc.aio.Server], None],
    address: str,
    tls: TlsSettings | None = None,
    *,
    insecure: bool = False,
    setting: str = "listen",
) -> tuple[grpc.aio.Server, int]:
    """Starts a server; returns it and its port. `setting` is the one that would bind another address.

    Errors: SettingsError when the address cannot be bound, or would need TLS.
    """
    check_plain_text(address, tls, insecure=insecure)
    host, port = split_address(address)
    _check_bindable(address, setting)
    server = grpc.aio.server(options=_SERVER, maximum_concurrent_rpcs=RPCS_MOST)
    register(server)
    target = join_address(host, port)
    try:
        if tls is None:
            bound = server.add_insecure_port(target)
        else:
            bound = server.add_secure_port(target, grpc_server_credentials(tls))
    except RuntimeError as error:
        raise _cannot_listen(address, "gRPC could not bind it", setting) from error
    await server.start()
    return server, bound


def _check_bindable(address: str, setting: str) -> None:
    """Binds the address for a moment: gRPC's own refusal says why in pages. Errors: SettingsError.

    Resolves a name in the calling thread, as gRPC itself does when it binds.
    """
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise _cannot_listen(address, f"no address of {host} is known", setting) from error
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(place)
        except OSError as error:
            raise _cannot_listen(address, error.strerror or str(error), setting) from error


def _cannot_listen(address: str, why: str, setting: str) -> SettingsError:
    return SettingsError(
        f"cannot listen on {address}: {why}; set {setting} to bind another address", field=setting
    )
