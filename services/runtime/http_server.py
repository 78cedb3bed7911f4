"""An HTTP listener: uvicorn with httptools inside a running loop, without its signal handlers."""

import asyncio
import socket
import ssl
from collections import Counter
from functools import partial
from typing import Any, cast

import uvicorn

from services.runtime.addresses import split_address
from services.runtime.http_bounds import DEFAULT_BOUNDS, Cut, HttpBounds
from services.runtime.http_protocol import BoundedHttpProtocol
from services.runtime.settings import SettingsError

KEEP_ALIVE_S = 75
"""Silence that ends a connection: between requests, or in what is left of one that was answered early."""

_UNSENT_BYTES = 128 << 10


class HttpServer:
    """Serves one ASGI app on one address. `start` returns once the listener accepts."""

    def __init__(
        self,
        app: Any,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        bounds: HttpBounds = DEFAULT_BOUNDS,
    ) -> None:
        self.cuts: Counter[Cut] = Counter()
        """Connections that broke a bound, ever; `HttpCutsCollector` exports them."""
        self._address = address
        self._tls = tls
        config = uvicorn.Config(
            app,
            interface="asgi3",
            proxy_headers=False,
            http=cast(type[asyncio.Protocol], partial(BoundedHttpProtocol, bounds=bounds, cuts=self.cuts)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        if tls is not None:
            config.ssl = tls
        self._server = uvicorn.Server(config)
        self._config = config
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Binds and serves. Errors: SettingsError when the address is taken."""
        host, port = split_address(self._address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Inherited by connections. A few MiB that wait in the kernel would hide that a slow client reads.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            message = f"cannot listen on {self._address}: {error.strerror}"
            raise SettingsError(message, field="address") from error
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        # uvicorn.Server.serve installs signal handlers; _serve is the same without them.
        self._task = asyncio.create_task(self._server._serve([listener]), name=f"http {self._address}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise SettingsError(f"the listener on {self._address} ended at once", field="address")
            await asyncio.sleep(0.005)

    async def stop(self, drain_s: float = 10.0) -> None:
        """Stops accepting, lets running requests end for `drain_s`, then closes what is left."""
        if self._task is None:
            return
        self._server.should_exit = True
        try:
            await asyncio.wait_for(asyncio.shield(self._task), drain_s)
        except TimeoutError:
            self._server.force_exit = True
            await self._task
        self._task = None
