"""Two echoes on loopback find each other; what others send is ignored, and an end is an end."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

from lab.netem import echo
from lab.netem.echo import Echo

US, EU = IPv4Address("127.0.0.2"), IPv4Address("127.0.0.3")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((str(US), 0))
        free: int = probe.getsockname()[1]
    monkeypatch.setattr(echo, "ECHO_PORT", free)
    monkeypatch.setattr(echo, "_PERIOD_S", 0.02)
    return free


@pytest.fixture
def pair(port: int) -> Iterator[tuple[Echo, Echo]]:
    ends = Echo(US, {"eu": EU}), Echo(EU, {"us": US})
    for each in ends:
        each.start()
    yield ends
    for each in ends:
        each.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "echo"]


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_both_ends_measure_and_forget(pair: tuple[Echo, Echo]) -> None:
    us, eu = pair
    until(lambda: set(us.rtts_ms()) == {"eu"} and set(eu.rtts_ms()) == {"us"})
    assert us.rtts_ms()["eu"] > 0.0
    eu.stop()
    us.forget("eu")
    time.sleep(0.1)
    assert us.rtts_ms() == {}, "nobody answers"


def test_strangers_and_rubbish_are_not_answered(pair: tuple[Echo, Echo], port: int) -> None:
    us, _ = pair
    asked = echo._MESSAGE.pack(echo._MAGIC, echo._ASK, 7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.settimeout(0.2)
        stranger.bind(("127.0.0.4", 0))
        for message in (asked, b"", b"x" * 64):
            stranger.sendto(message, (str(US), port))
        with pytest.raises(TimeoutError):
            stranger.recv(64)
    us.forget("eu")
    until(lambda: bool(us.rtts_ms()))


def test_an_echo_that_never_started_stops() -> None:
    Echo(US, {"eu": EU}).stop()
