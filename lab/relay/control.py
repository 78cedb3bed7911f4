"""The relay's local control: plain HTTP, easy to use with curl.

`PUT /partition/us/eu` cuts one direction, `DELETE` heals it; `GET /state` tells what is carried.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from lab.relay.network import Network, UnknownWireError

Message = MutableMapping[str, Any]


class ControlApp:
    """ASGI application over one `Network`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def __call__(
        self,
        scope: Message,
        _receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answers one request (ASGI)."""
        status, body = self._answer(scope["method"], scope["path"])
        payload = orjson.dumps(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": payload})

    def _answer(self, method: str, path: str) -> tuple[int, object]:
        match (method, path.strip("/").split("/")):
            case ("GET", ["ready"]):
                return 200, {"ready": True}
            case ("GET", ["state"]):
                return 200, self._network.state()
            case ("PUT" | "DELETE", ["partition", origin, destination]):
                change = self._network.cut if method == "PUT" else self._network.heal
                try:
                    change(origin, destination)
                except UnknownWireError as error:
                    return 404, {"error": str(error)}
                return 200, self._network.state()
        return 404, {"error": "try GET /state, PUT or DELETE /partition/ORIGIN/DESTINATION"}
