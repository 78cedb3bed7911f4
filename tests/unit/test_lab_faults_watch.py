"""Processes are watched while they live, die and come back; what edges counted before is not forgotten."""

import http.server
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kvcompass.plan.model import Edge
from lab.blueprint import Blueprint
from lab.faults.edge_counts import EdgeCounts, Totals
from lab.faults.watch import Watch
from lab.ports import LoopbackPorts
from lab.three_regions import LabOptions, three_regions


def state(wrong_claims: int, blind_decisions: int, *, ready: bool = True) -> dict[str, object]:
    return {
        "wrong_claims": wrong_claims,
        "blind_decisions": blind_decisions,
        "readiness": {"ready": ready, "reasons": []},
    }


def test_counters_of_restarted_edges_are_added_up() -> None:
    counts = EdgeCounts()
    counts.take("a", state(2, 5))
    counts.take("b", state(1, 0))
    counts.take("a", state(3, 5))
    assert counts.totals == Totals(4, 5)
    counts.take("a", state(0, 1))
    counts.take("a", state(1, 2))
    assert counts.totals == Totals(5, 7)


@contextmanager
def edge_at(address: str, told: dict[str, object]) -> Iterator[None]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = json.dumps(told).encode()
            self.send_response(200 if self.path == "/v1/kvcompass/state" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    host, _, port = address.partition(":")
    with http.server.ThreadingHTTPServer((host, int(port)), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield
        finally:
            server.shutdown()
            serving.join()


def only_edge(edge: Edge) -> Blueprint:
    blueprint = three_regions(LabOptions(), LoopbackPorts(random.Random(7)))
    plan = replace(blueprint.plan, edges=(edge,), workers=())
    return replace(blueprint, plan=plan, ops_addresses={})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_edge_is_seen_while_it_answers() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    edge = Edge("edge-a", "us", address, "127.0.0.1:1", "127.0.0.1:2")
    with Watch(only_edge(edge)) as watch, watch.closely():
        until(lambda: bool(watch.sight()["edge-a"]))
        assert not watch.says_ready("edge-a")
        with edge_at(address, state(1, 2)):
            until(lambda: watch.says_ready("edge-a"))
            assert watch.totals == Totals(1, 2)
        until(lambda: watch.sight()["edge-a"][-1].told is None)
        assert not watch.says_ready("edge-a")
        with edge_at(address, state(0, 1, ready=False)):
            until(lambda: watch.sight()["edge-a"][-1].told is not None)
            assert not watch.says_ready("edge-a")
            until(lambda: watch.totals == Totals(1, 3))
        glimpses = watch.sight()["edge-a"]
    assert [glimpse.at for glimpse in glimpses] == sorted(glimpse.at for glimpse in glimpses)
