"""The connection to an upstream notices an end that is gone without a word."""

import socket

import pytest
from aiohttp import web
from yarl import URL

from services.edge.forwarding import upstream
from services.edge.settings import Timeouts


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux")
async def test_a_connection_is_probed_while_it_waits(monkeypatch):
    sockets: list[socket.socket] = []
    probing = upstream._probing_socket

    def keeping(address):
        sockets.append(probing(address))
        return sockets[-1]

    async def answer(_request):
        return web.Response(text="ok")

    monkeypatch.setattr(upstream, "_probing_socket", keeping)
    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pool = upstream.Upstream.to_peers(Timeouts(), 1, None)
    try:
        host, port = runner.addresses[0]
        async with await pool.post(URL(f"http://{host}:{port}/"), {}, b"{}", 5) as got:
            assert await got.read(5, 100) == b"ok"
        (made,) = sockets
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in upstream._PROBES.items():
            assert made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
    finally:
        await pool.close()
        await runner.cleanup()
