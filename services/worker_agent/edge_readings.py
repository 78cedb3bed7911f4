"""Asks the edges of a worker's region how they read a conversation: the first that answers will do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import grpc
import grpc.aio

from kvcompass.errors import KVCompassError, ProtocolError
from kvcompass.roles.messages import Handshake, Refusal
from kvcompass.self_test.messages import SPELL_MOST, Reading, ReadRequest
from kvcompass.self_test.probe import ProbeMessage, Rendering
from services.runtime.stream_end import reason_of
from services.wire.rpc import read_prompt

_ANSWER_S: Final = 10.0
"""An edge reads one conversation at a time; this one waits for those of its region's other agents."""


class NoReadingError(KVCompassError):
    """No edge tells how it reads a conversation."""


class OldEdgesError(NoReadingError):
    """Edges answer, and all are of a version that does not tell."""


class EdgeReadings:
    """What edges say. `channels`: those of the region by id, now; `handshake` is asked for each question."""

    def __init__(
        self, channels: Callable[[], Mapping[str, grpc.aio.Channel]], handshake: Callable[[], Handshake]
    ) -> None:
        self._channels = channels
        self._handshake = handshake

    async def read(self, messages: Sequence[ProbeMessage]) -> Rendering:
        """How an edge reads it. Errors: NoReadingError with what each said; OldEdgesError."""
        return (await self._ask(ReadRequest(self._handshake(), tuple(messages)))).rendering

    async def spell(self, tokens: Sequence[int]) -> Mapping[int, str]:
        """Texts of tokens, of those that have one. Errors: as `read`."""
        asked = tuple(dict.fromkeys(token for token in tokens if token >= 0))[:SPELL_MOST]
        reading = await self._ask(ReadRequest(self._handshake(), spell=asked))
        return {token: text for token, text in zip(asked, reading.spelled, strict=False) if text}

    async def _ask(self, request: ReadRequest) -> Reading:
        problems: list[str] = []
        old = 0
        for edge_id, channel in self._channels().items():
            try:
                reply = await read_prompt(channel, request, _ANSWER_S)
            except grpc.aio.AioRpcError as error:
                old += error.code() is grpc.StatusCode.UNIMPLEMENTED
                problems.append(f"{edge_id}: {reason_of(error)}")
            except ProtocolError as error:
                problems.append(f"{edge_id}: {error}")
            else:
                if isinstance(reply, Reading):
                    return reply
                problems.append(f"{edge_id}: {_refused(reply)}")
        if old and old == len(problems):
            raise OldEdgesError("every edge of the region is of the version before", field="edges")
        raise NoReadingError("; ".join(problems) or "the region has no edge", field="edges")


def _refused(refusal: Refusal) -> str:
    return f"refused: {refusal.field}: {refusal.message}"
