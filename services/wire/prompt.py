"""`proto/kvcompass/v1/prompt.proto` <-> `kvcompass.self_test.messages`, between bytes and core types.

Decoders raise `ProtocolError` naming the field that is malformed; unknown fields are ignored.
"""

from typing import Final, assert_never

import numpy as np

from kvcompass.errors import ProtocolError
from kvcompass.roles.messages import Refusal
from kvcompass.self_test.messages import Reading, ReadReply, ReadRequest
from kvcompass.self_test.probe import ProbeMessage, Rendering
from services.wire.index import handshake_from_pb, handshake_to_pb, refusal_from_pb, refusal_to_pb
from services.wire.parsing import parsed
from services.wire.pb import prompt_pb2 as pb

_TOKEN_MOST: Final = 2**31 - 1


def encode_read_request(message: ReadRequest) -> bytes:
    """Core message -> protobuf bytes."""
    return pb.ReadRequest(
        handshake=handshake_to_pb(message.handshake),
        messages=[pb.ChatMessage(role=each.role, content=each.content) for each in message.messages],
        spell=message.spell,
    ).SerializeToString()


def decode_read_request(data: bytes) -> ReadRequest:
    """Protobuf bytes -> core message."""
    request = parsed(pb.ReadRequest(), data)
    return ReadRequest(
        handshake_from_pb(request.handshake),
        tuple(ProbeMessage(each.role, each.content) for each in request.messages),
        tuple(request.spell),
    )


def encode_read_reply(message: ReadReply) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case Reading():
            rendering = message.rendering
            reading = pb.Reading(
                tokens=rendering.tokens.tolist(),
                content_starts=[content.start for content in rendering.contents],
                content_ends=[content.stop for content in rendering.contents],
                spelled=message.spelled,
            )
            return pb.ReadReply(reading=reading).SerializeToString()
        case Refusal():
            return pb.ReadReply(refusal=refusal_to_pb(message)).SerializeToString()
        case _:
            assert_never(message)


def decode_read_reply(data: bytes) -> ReadReply:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.ReadReply(), data)
    match envelope.WhichOneof("message"):
        case "reading":
            return _reading_from_pb(envelope.reading)
        case "refusal":
            return refusal_from_pb(envelope.refusal)
        case _:
            raise ProtocolError("a ReadReply of a kind this version does not know", field="ReadReply")


def _reading_from_pb(reading: pb.Reading) -> Reading:
    if any(token > _TOKEN_MOST for token in reading.tokens):
        raise ProtocolError("a token id is at most 2**31 - 1", field="reading.tokens")
    contents = tuple(map(range, reading.content_starts, reading.content_ends))
    if len(reading.content_starts) != len(reading.content_ends) or any(
        content.start > content.stop or content.stop > len(reading.tokens) for content in contents
    ):
        raise ProtocolError("contents are ranges of tokens", field="reading.content_ends")
    tokens = np.array(reading.tokens, dtype=np.int32)
    return Reading(Rendering(tokens, contents), tuple(reading.spelled))
