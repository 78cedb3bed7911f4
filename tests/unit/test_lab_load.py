"""The load's report by hand, its options' bounds, and a run against edges that are not there."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from rich.console import Console

import lab.load
from lab.commands import add_arguments
from lab.load_fronts import Fronts
from lab.load_report import Counts, load_report, print_load
from lab.process import LabError
from lab.record import Record
from lab.workload.request import Workload

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "deploy" / "compose" / "plan.toml"
REGIONS = ("us", "eu", "asia")
BASE = Record(request_id="r", region="us", kind="document", family="f", sent_ms=0.0, late_ms=0.0)


class Edge(BaseHTTPRequestHandler):
    """Ready at the second question; counts one hit more at each look; knows one admin key."""

    asked: ClassVar[list[str]] = []
    ready_after = 2
    key = "admin"

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/ready":
            self.answer(200 if self.asked.count("/ready") >= self.ready_after else 503, {"state": "starting"})
        elif self.headers["authorization"] != f"Bearer {self.key}":
            self.answer(403, {})
        else:
            looks = self.asked.count(self.path)
            self.answer(200, {"cross_region_hits": looks, "wrong_claims": 0})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def edge() -> Any:
    Edge.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Edge) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser.add_subparsers())
    options = parser.parse_args(["load", "--plan", str(PLAN), *arguments])
    code: int = options.command(options)
    return code


def edges(url: str) -> list[str]:
    return [word for region in REGIONS for word in ("--edge", f"{region}={url}")]


def test_a_report_by_hand() -> None:
    records = [
        dataclasses.replace(BASE, ttft_ms=10.0, e2e_ms=100.0, prompt_tokens=50, cached_tokens=20),
        dataclasses.replace(
            BASE, region="asia", ttft_ms=30.0, e2e_ms=300.0, prompt_tokens=70, cached_tokens=64
        ),
        dataclasses.replace(BASE, region="asia", error="cut"),
    ]
    counts = {"us": Counts(1, 0), "eu": Counts(0, 0), "asia": Counts(4, 2)}
    report = load_report(REGIONS, records, counts)
    asia = report.regions["asia"]
    assert (asia.requests, asia.errors, asia.ttft_ms.p50, asia.e2e_ms.p95) == (2, 1, 30.0, 300.0)
    assert (asia.reused_tokens, asia.recomputed_tokens, asia.cross_region_hits) == (64, 6, 4)
    assert report.regions["eu"].requests == 0
    total = report.total
    assert (total.requests, total.errors, total.ttft_ms.p50, total.e2e_ms.p50) == (3, 1, 20.0, 200.0)
    assert (total.cross_region_hits, total.wrong_claims, total.recomputed_tokens) == (5, 2, 36)


def test_the_table_fits_a_terminal_and_says_what_nobody_told() -> None:
    console = Console(file=StringIO(), width=80)
    print_load(console, load_report(REGIONS, [BASE], None), "heading")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "cross-region hits" in text and "…" not in text
    assert text.count(" - ") == 2 * (len(REGIONS) + 1)


def test_an_edge_that_started_anew_counts_from_0() -> None:
    assert Counts(7, 3) - Counts(5, 3) == Counts(2, 0)
    assert Counts(2, 0) - Counts(5, 3) == Counts(2, 0)


async def test_counts_are_for_those_who_may_look(edge: str) -> None:
    urls = {"us": edge}
    assert await Fronts(urls, "user", "user").counts() is None
    assert await Fronts(urls, "user", "admin").counts() == {"us": Counts(2, 0)}


def test_an_edge_that_is_not_ready_in_time_is_named(edge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Edge, "ready_after", 1_000)
    with pytest.raises(LabError, match=r"the edge of eu at .* is not ready: 503 .*starting") as caught:
        Fronts({"eu": edge}, "k", "k").wait_ready(timeout_s=0.0)
    assert caught.value.field == "eu"


def test_rounds_send_other_sequences_over_the_same_texts(
    edge: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[tuple[Workload, dict[str, Any]]] = []

    async def replay(workload: Workload, urls: dict[str, str], **given: Any) -> Sequence[Record]:
        sent.append((workload, {"urls": urls, **given}))
        return [
            dataclasses.replace(BASE, request_id=request.id, region=request.region, error="" if i else "cut")
            for i, request in enumerate(workload.requests)
        ]

    monkeypatch.delenv("KVCOMPASS_DATA", raising=False)
    monkeypatch.setattr(lab.load, "replay", replay)
    (tmp_path / "user").write_text("sk-user\n")
    (tmp_path / "admin").write_text("admin\n")
    keys = ["--api-key-file", str(tmp_path / "user"), "--admin-key-file", str(tmp_path / "admin")]
    assert run(*edges(f"{edge}/v1/"), *keys, "--requests=9", "--repeat=2", "--json=-") == 1, "requests failed"
    first, second = (workload for workload, _ in sent)
    assert [len(workload.requests) for workload in (first, second)] == [9, 9]
    assert first.requests != second.requests
    texts = [{request.family for request in workload.requests} for workload in (first, second)]
    assert texts[0] & texts[1]
    given = sent[0][1]
    assert given["urls"] == dict.fromkeys(REGIONS, f"{edge}/v1")
    assert (given["api_key"], given["model"]) == ("sk-user", "lab-32b")
    printed = json.loads(capsys.readouterr().out)
    assert printed["total"]["requests"] == 18
    assert printed["total"]["errors"] == 2
    assert printed["total"]["cross_region_hits"] > 0
    assert len(printed["records"]) == 18


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--edge", "mars=http://127.0.0.1:1"], "the plan has no region mars; it has us, eu, asia"),
        (["--requests", "100001"], "--requests is at most 100,000"),
        (["--duration-s", "3601"], "--duration-s is at most 3,600"),
        (["--repeat", "1001"], "--repeat is at most 1,000"),
        (["--api-key-file", "/nonexistent"], "cannot read the key in /nonexistent"),
        (["--plan", "/nonexistent"], "cannot read plan /nonexistent"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("key", ["\n", "two\nlines", "k\u00e9y"])
def test_a_file_without_a_key_is_named(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key"
    path.write_text(key, "utf-8")
    assert run("--api-key-file", str(path)) == 2
    assert "one line of printable ASCII" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://127.0.0.1:x"])
def test_a_url_that_nothing_answers_is_refused_at_once(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--edge", f"us={url}")
    assert url in capsys.readouterr().err


def test_an_edge_is_given_as_region_and_url(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--edge", "us:8101")
    assert "give REGION=http://HOST:PORT" in capsys.readouterr().err
