"""Takes the bodies of plans in, of those only that may be plans, and few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from services.runtime.plan_desk import PLAN_BYTES, PlanDesk
from services.runtime.plan_signature import SIGNATURE_HEADER

BODIES_AT_ONCE: Final = 2
"""In memory, read or being applied: a command brings a component one."""
_BODY_S: Final = 10.0
"""For a plan to arrive."""

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""ASGI's. The first call asks a client that waits for it to send its body."""


class PlanIntake:
    """`PUT /plan/PHASE`. Whoever can be turned away by the head alone is, and the body stays unread.

    Only who has the plan key gets as far as a body, so nobody else can take the places of those who do.
    """

    def __init__(self, desk: PlanDesk) -> None:
        self._desk = desk
        self._bodies = 0

    async def put(
        self, phase_name: str, headers: Mapping[bytes, bytes], receive: Receive
    ) -> tuple[int, bytes]:
        """HTTP status and JSON body of the answer. `headers`: by name in small letters."""
        signature = headers.get(SIGNATURE_HEADER.encode(), b"").decode("latin-1")
        refused = self._desk.refused_unread(phase_name, signature)
        if refused is not None:
            return refused
        if _declared(headers) > PLAN_BYTES:
            return _TOO_LARGE
        if self._bodies >= BODIES_AT_ONCE:
            return self._desk.busy()
        self._bodies += 1
        try:
            body = await _body(receive)
            return await self._desk.bring(phase_name, signature, body) if isinstance(body, bytes) else body
        finally:
            self._bodies -= 1


_TOO_LARGE: Final = (413, b'{"error":"larger than any plan"}')


def _declared(headers: Mapping[bytes, bytes]) -> int:
    """Size that the head announces; 0 where it does not."""
    announced = headers.get(b"content-length", b"")
    return int(announced) if announced.isdigit() else 0


async def _body(receive: Receive) -> bytes | tuple[int, bytes]:
    """The whole body, or the answer to one that does not come whole."""
    body = bytearray()
    more = True
    try:
        async with asyncio.timeout(_BODY_S):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    return 400, b'{"error":"the plan was cut off"}'
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > PLAN_BYTES:
                    return _TOO_LARGE
    except TimeoutError:
        return 408, b'{"error":"the plan took too long to arrive"}'
    return bytes(body)
