"""HTTP/1.1 as uvicorn speaks it, bounded before the application is asked: heads, their time, stalled answers,
connections.
"""

import asyncio
from collections import Counter
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from services.runtime.http_bounds import Cut, HttpBounds

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large"
_TOO_MANY: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1"


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. What breaks a bound is closed here, and costs no task and no call of the application.

    uvicorn's parser keeps what it is sent until a line ends, and hands headers over when the last has come.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: HttpBounds,
        cuts: Counter[Cut],
    ) -> None:
        """`cuts` is the listener's, and counted up here."""
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._cuts = cuts
        self._pending_bytes = 0
        """Received since the parser last began a request, ended its head, or found a piece of body."""
        self._progress = False
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs from the first byte that may be a head's (at first: from connecting) to the head's end."""
        self._stall_timer: asyncio.TimerHandle | None = None
        """Runs while the client's socket is full."""
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept, or turn away above the bound."""
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._refuse(Cut.TOO_MANY, _TOO_MANY)
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_head_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Transport callback: the client does not keep up."""
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        """Transport callback: it has caught up."""
        self._stop_stall_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and count what it has kept without getting on: a head, a chunk's size, trailers.

        At most one read (256 KiB) more than the bound is ever held.
        """
        self._expect_head()
        self._progress = False
        super().data_received(data)
        self._pending_bytes = 0 if self._progress else self._pending_bytes + len(data)
        if self._pending_bytes > self._bounds.head_bytes and not self.transport.is_closing():
            self._refuse(Cut.HEAD_TOO_LARGE, _TOO_LARGE)
        elif self._head_timer is None and self._is_answered() and not self.transport.is_closing():
            # The rest of a request that was answered before its end. uvicorn took it for the next one, and
            # waits for no end of it: silence from here on is keep-alive's again.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """What the parser cannot read."""
        self._cuts[Cut.MALFORMED] += 1
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Parser callback."""
        self._progress = True
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Parser callback."""
        self._progress = True
        self._stop_head_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Parser callback."""
        self._progress = True
        self._stop_head_timer()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Parser callback."""
        self._stop_head_timer()
        super().on_message_complete()

    def _is_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    def _expect_head(self) -> None:
        """What comes may be a head's, though it may turn out to be an answered request's body."""
        if self._head_timer is None and (self.cycle is None or self._is_answered()):
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._bounds.head_s, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_stall_timer(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self._bounds.stalled_s, self._has_it_stalled)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _has_it_stalled(self) -> None:
        self._stall_timer = None
        if self.transport.get_write_buffer_size() < self._unsent:
            self._start_stall_timer()
        else:
            self._cuts[Cut.STALLED] += 1
            # Not close(), which would wait for the client to take the rest.
            self.transport.abort()

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._cuts[Cut.HEAD_TOO_LATE] += 1
        self.transport.abort()

    def _refuse(self, why: Cut, status: bytes) -> None:
        self._cuts[why] += 1
        if self.cycle is None or self._is_answered():
            self.transport.write(status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
        else:
            self.transport.abort()
