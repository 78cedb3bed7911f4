"""The parts every service shares, on real sockets."""

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import grpc.aio
import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs

from services.runtime.addresses import AddressError, join_address, split_address
from services.runtime.auth import ApiKeys, bearer_token, hash_api_key
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.http_server import HttpServer
from services.runtime.lifecycle import Lifecycle
from services.runtime.ops import Health, OpsServer
from services.runtime.plain_text import transport_mode
from services.runtime.settings import CommonSettings, SettingsError, TlsSettings, faults_named, load_settings


class ExampleLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int = 1
    kind: Literal["small", "large"] = "small"


class Example(CommonSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: str
    port: int = 1
    limits: ExampleLimits = ExampleLimits()


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ('plan = "p"\nid = 3', "id", "Expected `str`"),
        (
            'plan = "p"\nid = "a"\nprot = 3',
            "prot",
            "unknown key, did you mean port? known here: plan, ops_address",
        ),
        ('plan = "p"\nid = "a"\nspeed = 3', "speed", "unknown key; known here: plan"),
        (
            'plan = "p"\nid = "a"\n[tls]\ncart = "c"',
            "tls.cart",
            "did you mean cert? known here: cert, key, ca",
        ),
        ('plan = "p"\nid = "a"\n[limits]\nsiez = 1', "limits.siez", "did you mean size?"),
        ('plan = "p"\nid = "a"\n[limits]\nkind = "x"', "limits.kind", "'x'; it is one of 'small', 'large'"),
        ('id = "a"', "settings", "missing required field `plan`"),
        ('plan = "p"\nid = "a"\n[tls]\ncert = "c"', "tls", "missing required field `key`"),
        (
            'plan = "p"\nid = "a"\nlog_level = "verbose"',
            "log_level",
            "'verbose'; it is one of 'debug', 'info'",
        ),
        ("plan = ", "settings", "is not TOML"),
    ],
)
def test_a_bad_setting_is_refused_by_name(tmp_path: Path, text: str, field: str, words: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(Example, path)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path)) or field == "settings"


def test_later_faults_name_file_and_field_too(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught, faults_named(tmp_path / "s.toml"):
        raise SettingsError("must be odd", field="limits.size")
    assert str(caught.value) == f"{tmp_path / 's.toml'}: limits.size: must be odd"
    assert caught.value.field == "limits.size"


def test_a_missing_settings_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read settings file"):
        load_settings(Example, tmp_path / "absent.toml")


def test_overrides_replace_fields(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('plan = "p"\nid = "a"\nport = 2')
    assert load_settings(Example, path, {"port": 7}).port == 7


@pytest.mark.parametrize("address", ["127.0.0.1:80", "[::1]:443", "edge.internal:1"])
def test_addresses_round_trip(address: str) -> None:
    assert join_address(*split_address(address)) == address


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:x", "host:99999", "host:-1"])
def test_bad_addresses_are_refused(address: str) -> None:
    with pytest.raises(AddressError, match="not host:port"):
        split_address(address)


def test_api_keys_are_found_by_hash_only() -> None:
    keys = ApiKeys({hash_api_key("sk-one"): "team-a"}, field="api_keys")
    assert keys.lookup("sk-one") == "team-a"
    assert keys.lookup("sk-two") is None
    assert keys.lookup(hash_api_key("sk-one")) is None


def test_a_key_in_clear_is_refused_by_its_number_and_not_shown() -> None:
    hashes = {hash_api_key("sk-one"): "team-a", "sk-in-clear": "team-a"}
    with pytest.raises(SettingsError, match="hash-key") as caught:
        ApiKeys(hashes, field="api_keys")
    assert caught.value.field == "api_keys[1]"
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "token"),
    [(None, None), ("Bearer abc", "abc"), ("bearer abc", "abc"), ("Basic abc", None), ("Bearer ", None)],
)
def test_bearer_token(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token


async def test_ops_listener_tells_the_truth() -> None:
    registry = CollectorRegistry()
    Counter("kvcompass_example", "An example.", registry=registry).inc()
    health = Health(ready=False, state="CATCHING_UP", reasons=["shard 1 has no snapshot"])
    server = OpsServer("127.0.0.1:0", lambda: health, registry)
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        assert (await client.get("/health")).status_code == 200
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert ready.json()["reasons"] == ["shard 1 has no snapshot"]
        scraped = (await client.get("/metrics")).text
        assert "kvcompass_example_total 1.0" in scraped
        assert re.search(r'^kvcompass_build_info\{.*version="\d+\.\d+.*"\} 1.0$', scraped, re.MULTILINE)
        assert sys.platform != "linux" or "process_resident_memory_bytes " in scraped
        assert (await client.get("/other")).status_code == 404
        health = Health(ready=True, state="EXACT")
        assert (await client.get("/ready")).status_code == 200
    await server.stop()


async def test_ops_listener_has_the_switches_it_is_given() -> None:
    given: list[str] = []

    def switch(value: str) -> None:
        if not value:
            raise SettingsError("give a value", field="example")
        given.append(value)

    for switches, statuses in ((None, [404, 404, 404]), ({"example": switch}, [200, 400, 404])):
        server = OpsServer("127.0.0.1:0", lambda: Health(True, "up"), CollectorRegistry(), switches=switches)
        await server.start()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            paths = ("example/0.3", "example/", "other/0.3")
            answers = [await client.put(f"/faults/{path}") for path in paths]
            assert [answer.status_code for answer in answers] == statuses
            assert (await client.get("/faults/example/0.3")).status_code == 404
        await server.stop()
    assert given == ["0.3"]


async def test_a_taken_address_is_an_operating_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match="cannot listen"):
            await HttpServer(None, address).start()


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.7", "edge.invalid"])
async def test_an_address_that_grpc_cannot_bind_is_refused_in_one_line(
    host: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"{host}:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError) as caught:
            await serve_grpc(lambda _: None, address, insecure=True, setting="grpc_listen")
    assert caught.value.field == "grpc_listen"
    assert re.fullmatch(
        rf"cannot listen on {address}: [^:]+; set grpc_listen to bind another address", str(caught.value)
    )
    assert capfd.readouterr().err == "", "gRPC has nothing to add"


async def test_the_dialer_goes_where_it_is_told() -> None:
    server, port = await serve_grpc(lambda _: None, "127.0.0.1:0")
    dialer = Dialer({"10.9.9.9:1": f"127.0.0.1:{port}"})
    assert dialer.http_base("10.9.9.9:1") == f"http://127.0.0.1:{port}"
    channel = dialer.channel("10.9.9.9:1")
    await asyncio.wait_for(channel.channel_ready(), 5)
    assert channel.get_state() is grpc.ChannelConnectivity.READY
    await channel.close()
    await server.stop(0)


@pytest.mark.parametrize(
    ("url", "dialled"),
    [
        ("http://gpu-1:80", "http://127.0.0.1:1"),
        ("http://gpu-1", "http://127.0.0.1:1"),
        ("https://gpu-1", "https://127.0.0.1:2"),
        ("http://gpu-2", "http://gpu-2"),
        ("tcp://gpu-1:5557", "tcp://[::1]:3"),
        ("tcp://gpu-1:5558", "tcp://gpu-1:5558"),
        ("http://[fd00::1]:80", "http://127.0.0.1:4"),
        ("http://[fd00::1]", "http://127.0.0.1:4"),
        ("ipc:///run/events", "ipc:///run/events"),
        ("", ""),
    ],
)
def test_urls_of_the_plan_are_dialled_where_they_are_told(url: str, dialled: str) -> None:
    via = {
        "gpu-1:80": "127.0.0.1:1",
        "gpu-1:443": "127.0.0.1:2",
        "gpu-1:5557": "[::1]:3",
        "[fd00::1]:80": "127.0.0.1:4",
    }
    assert Dialer(via).url(url) == dialled


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1", "LOCALHOST:1"])
def test_plain_text_is_allowed_on_loopback(address: str) -> None:
    assert Dialer({}).component(address) == address


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.5:1", "edge-1:1", "127.0.0.1.example:1"])
async def test_plain_text_elsewhere_must_be_asked_for(address: str) -> None:
    with pytest.raises(SettingsError, match="insecure = true") as caught:
        await serve_grpc(lambda _: None, address)
    assert caught.value.field == "tls"
    for dial in (Dialer({}).channel, Dialer({}).http_base):
        with pytest.raises(SettingsError, match=r"add \[tls\]"):
            dial(address)
    assert Dialer({}, insecure=True).http_base(address) == f"http://{address}"
    tls = TlsSettings(cert="c", key="k", ca="a")
    assert Dialer({}, tls).http_base(address) == f"https://{address}"


def test_what_counts_is_where_a_connection_really_goes() -> None:
    """To a local relay, say one that speaks TLS onwards, plain text may go; and not the other way round."""
    assert Dialer({"10.0.0.5:1": "127.0.0.1:2"}).component("10.0.0.5:1") == "127.0.0.1:2"
    with pytest.raises(SettingsError, match="not on loopback"):
        Dialer({"127.0.0.1:2": "10.0.0.5:1"}).component("127.0.0.1:2")


@pytest.mark.parametrize(
    ("more", "mode"),
    [
        ({}, "plain_text_loopback"),
        ({"insecure": True}, "plain_text"),
        ({"tls": TlsSettings(cert="c", key="k", ca="a")}, "mutual_tls"),
        ({"tls": TlsSettings(cert="c", key="k", ca="a"), "insecure": True}, "mutual_tls"),
    ],
)
def test_the_mode_that_is_logged(more: dict[str, Any], mode: str) -> None:
    assert transport_mode(Example(plan="p", id="a", **more)) == mode


PROGRAM = """
import asyncio, sys
from kvcompass.errors import KVCompassError
from services.runtime.lifecycle import run
from services.runtime.logs import configure_logging

configure_logging("test", "t-0")

async def failing():
    raise KVCompassError("the plan is gone")

async def main(lifecycle):
    if sys.argv[1] == "fail":
        lifecycle.background(failing(), "failing")
    else:
        lifecycle.background(asyncio.sleep(3600), "sleeper")
        asyncio.get_running_loop().call_later(0.1, __import__("os").kill, __import__("os").getpid(), 15)
    await lifecycle.stopping.wait()
    print("drained")

run(main)
"""


@pytest.mark.parametrize(("mode", "status", "error"), [("term", 0, ""), ("fail", 2, "the plan is gone")])
def test_a_service_ends_in_order(mode: str, status: int, error: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, timeout=20)
    assert done.returncode == status
    assert done.stdout == "drained\n"
    assert error in done.stderr


@pytest.mark.parametrize("error", [SettingsError("taken", field="port"), ValueError("unforeseen")])
async def test_an_operating_error_is_told_in_a_line_and_another_with_its_trace(error: Exception) -> None:
    async def fails() -> None:
        raise error

    with capture_logs() as lines:
        lifecycle = Lifecycle()
        lifecycle.background(fails(), "listener")
        await lifecycle.stopping.wait()
        with pytest.raises(type(error)):
            await lifecycle.close()
    (line,) = lines
    assert (line["log_level"], line["task"]) == ("error", "listener")
    assert (line.get("reason"), line.get("exc_info")) == (
        (str(error), None) if isinstance(error, SettingsError) else (None, error)
    )
