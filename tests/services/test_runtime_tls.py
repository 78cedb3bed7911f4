"""Mutual TLS between components: certificates of the fleet's own CA on both sides, or no connection."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
import trustme

from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.http_server import HttpServer
from services.runtime.settings import CommonSettings, TlsSettings, load_settings
from services.runtime.tls import client_context, server_context


def fleet_tls(directory: Path, name: str) -> TlsSettings:
    """A CA and one certificate of it, as files named in settings relative to the settings file."""
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    home = directory / name
    home.mkdir()
    authority.cert_pem.write_to_path(home / "ca.pem")
    leaf.private_key_pem.write_to_path(home / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(home / "cert.pem")
    settings = home / "service.toml"
    settings.write_text('plan = "p"\n[tls]\ncert = "cert.pem"\nkey = "key.pem"\nca = "ca.pem"\n')
    tls = load_settings(CommonSettings, settings).tls
    assert tls is not None
    return tls


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
    ours, theirs = fleet_tls(tmp_path, "ours"), fleet_tls(tmp_path, "theirs")
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
    ours, theirs = fleet_tls(tmp_path, "ours"), fleet_tls(tmp_path, "theirs")
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
