"""Bytes -> protobuf messages, whatever they are of."""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kvcompass.errors import ProtocolError

_Message = TypeVar("_Message", bound=Message)


def parsed(message: _Message, data: bytes) -> _Message:
    """Fill an empty message with what some bytes say. Errors: ProtocolError, which names its kind."""
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        kind = type(message).__name__
        raise ProtocolError(f"not a {kind}: {error}", field=kind) from error
    return message
