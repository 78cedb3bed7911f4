"""A router's listeners answer one client after the other; none of them may keep the next one waiting."""

import contextlib
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from lab.netem import __main__ as program
from lab.netem import http_api
from lab.netem.errors import RouterError

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
            with contextlib.suppress(BrokenPipeError):  # nobody reads any more
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


def test_a_second_router_leaves_the_first_ones_rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []

    class Second:
        def __init__(self, *_: Any) -> None:
            pass

        def start(self) -> None:
            touched.append("start")

        def stop(self) -> None:
            touched.append("stop")

    with socket.create_server(("0.0.0.0", 0)) as first:
        monkeypatch.setattr(http_api, "METRICS_PORT", first.getsockname()[1])
        monkeypatch.setattr(program, "Router", Second)
        monkeypatch.setattr(program, "load_settings", lambda *_: None)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
        with pytest.raises(RouterError, match="does a router run here"):
            program._run(Path(), "us")
    assert touched == []
