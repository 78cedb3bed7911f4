"""The relay's local control: plain HTTP, easy to use with curl.

`PUT /partition/us/eu` cuts one direction, `DELETE` heals it; `PATCH /link/us/eu` with a JSON object such as
`{"one_way_ms": 200}` changes it; `GET /state` tells what is carried.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import orjson

from kvcompass.wan import WanError
from lab.relay.network import Network, UnknownWireError

Message = MutableMapping[str, Any]

_MOST_BYTES = 65_536


class ControlApp:
    """ASGI application over one `Network`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answers one request (ASGI)."""
        given = await _body(receive) if scope["method"] == "PATCH" else b""
        status, body = self._answer(scope["method"], scope["path"], given)
        payload = orjson.dumps(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": payload})

    def _answer(self, method: str, path: str, given: bytes) -> tuple[int, object]:
        network = self._network
        try:
            match (method, path.strip("/").split("/")):
                case ("GET", ["ready"]):
                    return 200, {"ready": True}
                case ("GET", ["state"]):
                    return 200, network.state()
                case ("PUT", ["partition", origin, destination]):
                    network.cut(origin, destination)
                    return 200, network.state()
                case ("DELETE", ["partition", origin, destination]):
                    network.heal(origin, destination)
                    return 200, network.state()
                case ("PATCH", ["link", origin, destination]):
                    network.change(origin, destination, msgspec.json.decode(given, type=dict[str, Any]))
                    return 200, network.state()
        except UnknownWireError as error:
            return 404, {"error": str(error)}
        except (WanError, msgspec.MsgspecError) as error:
            return 400, {"error": str(error)}
        return 404, {"error": "try GET /state, PUT or DELETE /partition/FROM/TO, or PATCH /link/FROM/TO"}


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    """The body of a request, or its first 64 KB: more is no change to a link."""
    pieces = b""
    while len(pieces) < _MOST_BYTES:
        message = await receive()
        pieces += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return pieces[:_MOST_BYTES]
