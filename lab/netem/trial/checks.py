"""What a wide-area network must do, each as a measurement between hosts that know nothing of routers."""

import contextlib
import itertools
import math
import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.netem import idle_path
from lab.netem.netfilter import CHAIN
from lab.netem.shell import call
from lab.netem.tolerance import allowed_error_ms
from lab.netem.trial.flow import Flow, run_flow
from lab.netem.trial.namespaces import REGIONS, Namespaces
from lab.netem.trial.outcome import Outcome, exactly, near
from lab.netem.trial.routers import Routers

_SIGMAS: Final = 4.5
"""How far a share may be from the wanted one, in standard deviations: 1 trial in 100,000 fails by chance."""

_BUSY: Final = 2.0
"""Processes that want a core, for each core."""
_ASKED: Final = 20
"""Times, a second apart, that a router is asked for a round trip."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Running routers, and how hard they may be driven here."""

    namespaces: Namespaces
    routers: Routers
    shaper: str
    most_per_s: int
    """Packets a second that the router must carry; a kernel in a process carries fewer."""

    def flow(self, origin: str, destination: str, packets: int, per_s: float, payload: int = 100) -> Flow:
        """Packets from host to host."""
        return run_flow(self.namespaces, origin, destination, packets=packets, per_s=per_s, payload=payload)


def delay(trial: Trial) -> Iterator[Outcome]:
    """Every direction takes its own time, and both together within 3 ms or 5 % of what they should."""
    measured: dict[tuple[str, str], float] = {}
    for origin, destination in itertools.permutations(REGIONS, 2):
        measured[origin, destination] = trial.flow(origin, destination, 40, 50).unhindered_ms
    for origin, destination in itertools.combinations(REGIONS, 2):
        wanted = {}
        for ends in ((origin, destination), (destination, origin)):
            wanted[ends] = _link(trial, *ends)["one_way_ms"]
            name = f"delay {ends[0]} > {ends[1]}"
            yield near(name, measured[ends], wanted[ends], allowed_error_ms(2.0 * wanted[ends]) / 2.0, "ms")
        both = sum(wanted.values())
        there_and_back = measured[origin, destination] + measured[destination, origin]
        name = f"round trip {origin} - {destination}"
        yield near(name, there_and_back, both, allowed_error_ms(both), "ms")


def echoes(trial: Trial) -> Iterator[Outcome]:
    """What a router itself measures is the round trip."""
    wanted = _link(trial, "us", "asia")["one_way_ms"] + _link(trial, "asia", "us")["one_way_ms"]
    told = _told_rtt_ms(trial, "us", "asia", wanted)
    yield near("round trip us - asia, as router us tells", told, wanted, 0.05 * wanted, "ms")


def jitter(trial: Trial) -> Iterator[Outcome]:
    """Times vary by the standard deviation, and yet nothing is overtaken."""
    trial.routers.change("us", "eu", one_way_ms=40, jitter_ms=5)
    spaced = trial.flow("us", "eu", 150, 30)
    yield near("jitter 5 ms: mean delay", statistics.mean(spaced.delays_ms), 40.0, 3.0, "ms")
    yield near("jitter 5 ms: standard deviation", statistics.stdev(spaced.delays_ms), 5.0, 1.5, "ms")
    close = trial.flow("us", "eu", 500, 500)
    yield exactly("jitter 5 ms: packets overtaken", close.overtaking, 0, "packets")
    trial.routers.change("us", "eu", one_way_ms=20, jitter_ms=0)


def loss(trial: Trial) -> Iterator[Outcome]:
    """The share that is lost."""
    trial.routers.change("us", "eu", loss=0.1)
    before = _direction(trial, "us", "us", "eu")["shaped_drops"]
    flow = trial.flow("us", "eu", 1_500, 750)
    yield _share("loss 10 %", flow.lost, 0.1, flow.sent)
    told = _direction(trial, "us", "us", "eu")["shaped_drops"] - before
    # Echoes are lost too: one a second.
    yield near("loss 10 %: what the router counted more", told - flow.lost * flow.sent, 0, 5, "packets")
    trial.routers.change("us", "eu", loss=0)
    yield exactly("loss 0 %", trial.flow("us", "eu", 500, 500).lost, 0.0, "")


def duplicate(trial: Trial) -> Iterator[Outcome]:
    """The share that arrives twice, no copy earlier than it may."""
    trial.routers.change("us", "eu", duplicate=0.1)
    flow = trial.flow("us", "eu", 1_000, 500)
    yield _share("duplicate 10 %", flow.duplicated, 0.1, flow.sent)
    yield Outcome("duplicate 10 %: the earliest arrival", min(flow.delays_ms), 20.0, 23.0, "ms")
    trial.routers.change("us", "eu", duplicate=0)


def reorder(trial: Trial) -> Iterator[Outcome]:
    """The share that arrives at once."""
    trial.routers.change("us", "eu", reorder=0.1)
    flow = trial.flow("us", "eu", 1_000, 500)
    early = sum(each < 10.0 for each in flow.delays_ms) / flow.sent
    yield _share("reorder 10 %", early, 0.1, flow.sent)
    trial.routers.change("us", "eu", reorder=0)


def rate(trial: Trial) -> Iterator[Outcome]:
    """Twice what fits is sent for a second."""
    trial.routers.change("us", "eu", rate=4.0)
    flow = trial.flow("us", "eu", 800, 800, payload=1_222)
    yield near("rate 4 Mbit/s", flow.mbit_s, 4.0, 0.4, "Mbit/s")
    yield Outcome("rate 4 Mbit/s: what waits is bounded", max(flow.delays_ms), 100.0, 400.0, "ms")
    trial.routers.change("us", "eu", rate=None)


def partition(trial: Trial) -> Iterator[Outcome]:
    """A cut region hears and says nothing, the others notice nothing, and a connection outlives the cut."""
    with _connection(trial.namespaces, "us", "asia") as (near_end, far_end):
        trial.routers.ask("us", "/cut", {"region": "asia", "one_way": False})
        yield exactly("cut: us > asia", trial.flow("us", "asia", 50, 100).lost, 1.0, "lost")
        yield exactly("cut: asia > us", trial.flow("asia", "us", 50, 100).lost, 1.0, "lost")
        yield exactly("cut: us > eu", trial.flow("us", "eu", 50, 100).lost, 0.0, "lost")
        yield exactly("cut: eu > asia", trial.flow("eu", "asia", 50, 100).lost, 0.0, "lost")
        near_end.sendall(b"during")
        trial.routers.ask("us", "/heal", {"region": "asia", "one_way": False})
        yield exactly("healed: us > asia", trial.flow("us", "asia", 50, 100).lost, 0.0, "lost")
        yield exactly("healed: bytes sent during the cut", len(far_end.recv(64)), 6, "bytes")
    trial.routers.ask("us", "/cut", {"region": "asia", "one_way": True})
    yield exactly("cut one way: us > asia", trial.flow("us", "asia", 50, 100).lost, 1.0, "lost")
    yield exactly("cut one way: asia > us", trial.flow("asia", "us", 50, 100).lost, 0.0, "lost")
    trial.routers.ask("us", "/heal", {"region": "asia", "one_way": True})


def load(trial: Trial) -> Iterator[Outcome]:
    """Many packets a second: none is lost, and the router sleeps most of the time.

    What they are late by is told and not judged, nor what is lost where many others want the cores: it would
    be their figure.
    """
    most_lost = 1.0 if os.getloadavg()[0] > _BUSY * (os.cpu_count() or 1) else 0.0
    seconds = 2.0
    before_s = trial.routers.cpu_s("us")
    flow = trial.flow("us", "eu", round(seconds * trial.most_per_s), trial.most_per_s, payload=1_000)
    used_s = trial.routers.cpu_s("us") - before_s
    yield Outcome(f"{trial.most_per_s} packets/s", flow.lost, 0.0, most_lost, "lost")
    yield Outcome(f"{trial.most_per_s} packets/s: delay", flow.median_ms, 20.0, math.inf, "ms")
    yield Outcome(f"{trial.most_per_s} packets/s: CPU of the router", used_s / seconds, 0.0, 0.8, "cores")


def idle(trial: Trial) -> Iterator[Outcome]:
    """64 KB after ten seconds of silence."""
    for place in ("host-us", "host-asia"):
        with trial.namespaces.inside(place):
            for name, value in idle_path.SYSCTLS.items():
                Path("/proc/sys", name.replace(".", "/")).write_text(value, "ascii")
    with trial.namespaces.inside("host-asia"):
        listener = idle_path.listen()
    with listener:
        server = threading.Thread(target=idle_path.serve, args=(listener,), daemon=True)
        server.start()
        with trial.namespaces.inside("host-us"):
            connection = socket.create_connection((trial.namespaces.host("asia"), idle_path.PORT), 10.0)
        with connection:
            measured = idle_path.measure(connection)
        server.join(10.0)
    most_ms = (1.0 + idle_path.TOLERANCE) * measured.one_way_ms
    yield near("idle path: one way", measured.one_way_ms, 75.0, 3.75, "ms")
    yield Outcome("idle path: 64 KB after 10 s", measured.after_idle_ms, measured.one_way_ms, most_ms, "ms")
    yield Outcome("idle path: 64 KB, first of a connection", measured.first_ms, 75.0, 1_000.0, "ms")


def restart(trial: Trial) -> Iterator[Outcome]:
    """A killed router leaves nothing that its next life trips over; a stopped one leaves nothing at all."""
    trial.routers.kill("us")
    if trial.shaper == "nfqueue":
        yield exactly("shaper killed: us > eu", trial.flow("us", "eu", 50, 100).lost, 1.0, "lost")
    trial.routers.start("us")
    yield near("killed and started: us > eu", trial.flow("us", "eu", 40, 50).unhindered_ms, 20.0, 1.5, "ms")
    yield exactly("stopped: exit status", trial.routers.stop("us"), 0, "")
    router = trial.namespaces.name("router-us")
    left = call("ip", "netns", "exec", router, "iptables", "-t", "mangle", "-S").count(CHAIN)
    left += call("ip", "netns", "exec", router, "tc", "qdisc", "show").count("netem")
    left += call("ip", "-n", router, "route").count("10.214.2.0/24")
    yield exactly("stopped: rules, queues and routes left", left, 0, "")
    trial.routers.start("us")


def profile(trial: Trial) -> Iterator[Outcome]:
    """Another profile while it runs."""
    for region in REGIONS:
        trial.routers.ask(region, "/profile", {"name": "cloudping-three"})
    yield near(
        "profile cloudping-three: us > eu", trial.flow("us", "eu", 40, 50).unhindered_ms, 46.4, 2.3, "ms"
    )
    told = _told_rtt_ms(trial, "eu", "asia", 227.4)
    yield near("profile cloudping-three: eu - asia, as told", told, 227.4, 11.4, "ms")


CHECKS: Final = (
    delay,
    echoes,
    jitter,
    loss,
    duplicate,
    reorder,
    rate,
    partition,
    load,
    idle,
    restart,
    profile,
)


def _direction(trial: Trial, region: str, origin: str, destination: str) -> dict[str, Any]:
    for each in trial.routers.ask(region, "/show")["directions"]:
        if (each["origin"], each["destination"]) == (origin, destination):
            found: dict[str, Any] = each
            return found
    raise AssertionError("a router tells of every direction to and from it")


def _told_rtt_ms(trial: Trial, origin: str, destination: str, wanted_ms: float) -> float:
    """What the router at `origin` measures: the nearest of some answers, for it starts with old ones."""
    answers: list[float] = []
    for _ in range(_ASKED):
        told = _direction(trial, origin, origin, destination)["rtt_ms"]
        answers.append(math.inf if told is None else told)
        if abs(answers[-1] - wanted_ms) < 0.02 * wanted_ms:
            break
        time.sleep(1.0)
    return min(answers, key=lambda each: abs(each - wanted_ms))


def _link(trial: Trial, origin: str, destination: str) -> dict[str, float]:
    link: dict[str, float] = _direction(trial, origin, origin, destination)["link"]
    return link


def _share(name: str, measured: float, wanted: float, of: int) -> Outcome:
    return near(name, measured, wanted, _SIGMAS * math.sqrt(wanted * (1.0 - wanted) / of), "share")


@contextlib.contextmanager
def _connection(
    namespaces: Namespaces, origin: str, destination: str
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection between two hosts."""
    with namespaces.inside(f"host-{destination}"):
        listener = socket.create_server((namespaces.host(destination), 0))
    with listener:
        with namespaces.inside(f"host-{origin}"):
            near_end = socket.create_connection(listener.getsockname(), 10.0)
        with near_end:
            far_end, _ = listener.accept()
            with far_end:
                far_end.settimeout(20.0)
                yield near_end, far_end
