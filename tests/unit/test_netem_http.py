"""A router's listeners and clients that hang up."""

from http.server import BaseHTTPRequestHandler

import pytest

from lab.netem.http_api import Server


@pytest.mark.parametrize(
    ("error", "told"),
    [(ConnectionResetError, False), (BrokenPipeError, False), (ZeroDivisionError, True)],
)
def test_only_a_fault_of_the_router_leaves_a_traceback(
    error: type[Exception], told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(("127.0.0.1", 0), BaseHTTPRequestHandler, bind_and_activate=False)
    try:
        try:
            raise error
        except error:
            server.handle_error(None, ("127.0.0.1", 1))
    finally:
        server.server_close()
    assert (error.__name__ in capsys.readouterr().err) == told
