"""A router's listeners answer one client after the other; none of them may keep the next one waiting."""

import socket
import threading

import pytest

from lab.netem import http_api

_DRIPS = 1_000
_PAUSE_S = 0.02


def test_a_client_that_sends_byte_by_byte_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "_TIMEOUT_S", 0.2)
    answered = threading.Event()
    gave_up = threading.Event()

    def drip(client: socket.socket) -> None:
        client.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        for _ in range(_DRIPS):
            if answered.wait(_PAUSE_S):
                return
            client.sendall(b"a")
        gave_up.set()
        client.shutdown(socket.SHUT_WR)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        dripping = threading.Thread(target=drip, args=(theirs,))
        dripping.start()
        http_api._PublicHandler(ours, ("127.0.0.1", 0), None)  # type: ignore[arg-type]
        answered.set()
        dripping.join()
    assert not gave_up.is_set()
