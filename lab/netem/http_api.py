"""A router's two HTTP listeners: what everybody may read, and commands from inside the container only."""

import contextlib
import json
import re
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from kvcompass.errors import KVCompassError
from lab.netem.errors import RouterError
from lab.netem.log import say
from lab.netem.metrics import CONTENT_TYPE, exposition
from lab.netem.orders import order
from lab.netem.router import Router
from lab.netem.settings import CONTROL_PORT, METRICS_PORT

_TIMEOUT_S: Final = 2.0
"""For a client to send its request, silent or dripping: requests are answered one after the other."""
_MOST_BYTES: Final = 65_536


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S
    router: Router

    def setup(self) -> None:
        """Starts the client's time: `timeout` bounds each silence, and this what is read in all."""
        super().setup()
        self._late = threading.Timer(_TIMEOUT_S, self._read_no_more)
        self._late.daemon = True
        self._late.start()

    def finish(self) -> None:
        """Nothing is late any more."""
        self._late.cancel()
        super().finish()

    def _read_no_more(self) -> None:
        with contextlib.suppress(OSError):  # it has hung up itself
            self.connection.shutdown(socket.SHUT_RD)

    def log_message(self, *_: object) -> None:
        """Scrapes are not worth a line."""

    def answer(self, status: int, content_type: str, text: str) -> None:
        """Sends the whole answer."""
        payload = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def answer_json(self, status: int, body: object) -> None:
        """Sends a JSON document."""
        self.answer(status, "application/json", json.dumps(body))


class _PublicHandler(_Handler):
    def do_GET(self) -> None:
        """Answers /metrics and /healthz."""
        if self.path == "/healthz":
            self.answer_json(200, {"ok": True})
        elif self.path == "/metrics":
            try:
                self.answer(200, CONTENT_TYPE, exposition(self.router.report()))
            except KVCompassError as error:
                self.answer_json(500, {"error": str(error)})
        else:
            self.answer_json(404, {"error": "try /metrics or /healthz"})


class _ControlHandler(_Handler):
    def do_GET(self) -> None:
        """Answers /show."""
        if self.path == "/show":
            self._obey(lambda _: None)
        else:
            self.answer_json(404, {"error": "try GET /show, POST /cut, /heal, /set or /profile"})

    def do_POST(self) -> None:
        """Takes a command; its arguments are a JSON object."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,6}", length) or int(length) > _MOST_BYTES:
            self.answer_json(413, {"error": f"Content-Length: give the body's bytes, {_MOST_BYTES} at most"})
            return
        body = self.rfile.read(int(length))
        self._obey(lambda router: order(self.path, body)(router))

    def _obey(self, command: Callable[[Router], None]) -> None:
        try:
            command(self.router)
            report = self.router.report().as_json()
        except KVCompassError as error:
            self.answer_json(400, {"error": str(error)})
            return
        self.answer_json(200, report)


class Server(HTTPServer):
    """One request after the other; a client that hangs up, as a probe does after the status, is no error."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints a traceback, but for a client that has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class HttpApi:
    """Both listeners, a thread each. Raises: RouterError where they are taken, as by another router."""

    def __init__(self, router: Router) -> None:
        try:
            self._servers = [
                Server(("0.0.0.0", METRICS_PORT), type("Public", (_PublicHandler,), {"router": router})),
                Server(("127.0.0.1", CONTROL_PORT), type("Control", (_ControlHandler,), {"router": router})),
            ]
        except OSError as error:
            message = f"cannot listen on {METRICS_PORT} and {CONTROL_PORT}: {error}; does a router run here?"
            raise RouterError(message, field="router") from error

    def start(self) -> None:
        """Answers from now on."""
        for server in self._servers:
            threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        say("listening", metrics=METRICS_PORT, control=CONTROL_PORT)

    def stop(self) -> None:
        """Ends both threads."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
