"""Mutual TLS between components: certificates of the fleet's own CA on both sides, or no connection."""

import asyncio
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from msgspec.structs import replace

from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.http_server import HttpServer
from services.runtime.settings import SettingsError, TlsSettings
from services.runtime.tls import client_context, server_context
from tests.models.fleet_authority import FleetAuthority

INSTALL = Path(__file__).parents[2] / "docs" / "install.md"


async def reached(dialer: Dialer, port: int) -> bool:
    channel = dialer.channel(f"127.0.0.1:{port}")
    try:
        await asyncio.wait_for(channel.channel_ready(), 2)
    except TimeoutError:
        return False
    finally:
        await channel.close()
    return True


async def test_grpc_connects_only_with_a_certificate_of_the_fleet(tmp_path: Path) -> None:
    ours, theirs = (FleetAuthority(tmp_path / name).tls("unit") for name in ("ours", "theirs"))
    server, port = await serve_grpc(lambda _: None, "127.0.0.1:0", ours)
    try:
        assert await reached(Dialer({}, ours), port)
        assert not await reached(Dialer({}, theirs), port)
        assert await plain_call_fails(port)
    finally:
        await server.stop(0)


async def plain_call_fails(port: int) -> bool:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            await channel.unary_unary("/any/Call")(b"", timeout=2)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNAVAILABLE
    return False


async def answer(_scope: object, _receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]


async def test_http_answers_only_with_a_certificate_of_the_fleet(tmp_path: Path) -> None:
    ours, theirs = (FleetAuthority(tmp_path / name).tls("unit") for name in ("ours", "theirs"))
    server = HttpServer(answer, "127.0.0.1:0", tls=server_context(ours))
    await server.start()
    url = f"https://127.0.0.1:{server.port}/"
    anonymous = ssl.create_default_context(cafile=ours.ca)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as client:
            async with client.get(url, ssl=client_context(ours)) as response:
                assert response.status == 204
            for stranger in (client_context(theirs), anonymous):
                with pytest.raises(aiohttp.ClientError):
                    await client.get(url, ssl=stranger)
    finally:
        await server.stop(1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not there")
async def test_the_recipe_for_certificates_makes_a_fleet(tmp_path: Path) -> None:
    tls = made_as_installed(tmp_path)
    server, port = await serve_grpc(lambda _: None, "127.0.0.1:0", tls)
    try:
        assert await reached(Dialer({}, tls), port)
        assert not await reached(Dialer({}, FleetAuthority(tmp_path / "others").tls("unit")), port)
    finally:
        await server.stop(0)
    await shake_hands(tls, ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN)


async def shake_hands(tls: TlsSettings, flags: int) -> None:
    """Over HTTP's contexts, as strict as later versions of Python are."""
    theirs, ours = server_context(tls), client_context(tls)
    theirs.verify_flags |= flags
    ours.verify_flags |= flags
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ours)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("field", ["ca", "cert", "key"])
def test_a_file_that_is_missing_or_no_certificate_is_named(tmp_path: Path, field: str) -> None:
    tls = FleetAuthority(tmp_path / "fleet").tls("unit")
    file = Path(getattr(tls, field))
    for context in (server_context, client_context):
        file.write_text("no PEM", "utf-8")
        with pytest.raises(SettingsError, match=re.escape(str(file))) as caught:
            context(tls)
        assert caught.value.field == f"tls.{field}"
    file.unlink()
    for context in (server_context, client_context):
        with pytest.raises(SettingsError, match=re.escape(str(file))) as caught:
            context(tls)
        assert caught.value.field == f"tls.{field}"


async def test_a_listener_blames_the_file_and_not_its_address(tmp_path: Path) -> None:
    tls = replace(FleetAuthority(tmp_path / "fleet").tls("unit"), cert=__file__)
    with pytest.raises(SettingsError) as caught:
        await serve_grpc(lambda _: None, "127.0.0.1:0", tls)
    assert caught.value.field == "tls.cert"


def made_as_installed(folder: Path) -> TlsSettings:
    """A pair for this machine, by docs/install.md."""
    recipe = INSTALL.read_text("utf-8").partition("```sh\n")[2].partition("```")[0]
    assert "10.0.0.7" in recipe
    script = recipe.replace("10.0.0.7", "127.0.0.1")
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True, timeout=60)
    return TlsSettings(*(str(folder / name) for name in ("edge-us.pem", "edge-us.key", "ca.pem")))
