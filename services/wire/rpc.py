"""The gRPC methods of `proto/kvcompass/v1`, spoken in core messages.

Both ends use these, so that no service sees protobuf: a client gets a callable on a channel, a server
registers an object with one method a stream. Malformed bytes raise the decoder's `ProtocolError` where the
message is awaited.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from kvcompass.errors import ProtocolError
from kvcompass.roles.messages import (
    AgentLoad,
    AgentToUnit,
    EdgeToUnit,
    LoadReply,
    RegionBroadcast,
    UnitToAgent,
    UnitToEdge,
)
from kvcompass.self_test.messages import ReadReply, ReadRequest
from services.wire import index, load, prompt

_INDEX = "kvcompass.v1.IndexMaintenance"
_LOAD = "kvcompass.v1.LoadExchange"
_PROMPTS = "kvcompass.v1.Prompts"

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_Sent = TypeVar("_Sent")
_Received = TypeVar("_Received")
_END: Final[object] = vars(grpc.aio)["EOF"]
"""What a call's `read` returns at the end; grpc's type stubs do not have it."""

Opener: TypeAlias = Callable[[], grpc.aio.StreamStreamCall[_Sent, _Received]]
"""Opens a stream on the channel it was made for."""


class IndexMaintenance(Protocol):
    """What a maintenance unit serves. The end of a method ends its stream."""

    async def report(self, messages: AsyncIterator[AgentToUnit], context: Context) -> None:
        """One stream a (worker, unit). It is written to `context`."""
        ...

    async def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: Context) -> None:
        """One stream a (subscriber, unit). It is written to `context`."""
        ...


class ViewSubscriptions(Protocol):
    """What an edge serves of the same service, for other edges of its region."""

    async def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: Context) -> None:
        """One stream a (subscriber, shard). It is written to `context`."""
        ...


class LoadExchange(Protocol):
    """What an edge serves. Streams are written to `context`."""

    async def report_load(self, messages: AsyncIterator[AgentLoad], context: Context) -> None:
        """One stream a worker of the edge's region."""
        ...

    async def exchange_load(self, messages: AsyncIterator[RegionBroadcast], context: Context) -> None:
        """One stream an edge of another region."""
        ...


class Prompts(Protocol):
    """What an edge serves besides. Edges of the version before answer UNIMPLEMENTED."""

    async def read(self, request: ReadRequest, context: Context) -> ReadReply:
        """How the edge reads a conversation."""
        ...


def register_index_maintenance(server: grpc.aio.Server, service: IndexMaintenance) -> None:
    """Serves `service` on a server that has not started."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Report": grpc.stream_stream_rpc_method_handler(
            service.report, index.decode_agent_to_unit, index.encode_unit_to_agent
        ),
        "Subscribe": _subscribe_handler(service),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_INDEX, handlers),))


def register_view_subscriptions(server: grpc.aio.Server, service: ViewSubscriptions) -> None:
    """Serves `service` on a server that has not started. `Report` is answered UNIMPLEMENTED there."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Subscribe": _subscribe_handler(service)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_INDEX, handlers),))


def register_load_exchange(server: grpc.aio.Server, service: LoadExchange) -> None:
    """Serves `service` on a server that has not started."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "ReportLoad": grpc.stream_stream_rpc_method_handler(
            service.report_load, load.decode_agent_load, load.encode_load_reply
        ),
        "ExchangeLoad": grpc.stream_stream_rpc_method_handler(
            service.exchange_load, load.decode_region_broadcast, load.encode_load_reply
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_LOAD, handlers),))


def register_prompts(server: grpc.aio.Server, service: Prompts) -> None:
    """Serves `service` on a server that has not started."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Read": grpc.unary_unary_rpc_method_handler(
            service.read, prompt.decode_read_request, prompt.encode_read_reply
        )
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_PROMPTS, handlers),))


def report(channel: grpc.aio.Channel) -> Opener[AgentToUnit, UnitToAgent]:
    """Worker agent -> maintenance unit: `call = report(channel)()`, then `call.write` and `read(call)`."""
    return _opener(channel, f"/{_INDEX}/Report", index.encode_agent_to_unit, index.decode_unit_to_agent)


def subscribe(channel: grpc.aio.Channel) -> Opener[EdgeToUnit, UnitToEdge]:
    """Edge -> maintenance unit, or another edge of its region."""
    return _opener(channel, f"/{_INDEX}/Subscribe", index.encode_edge_to_unit, index.decode_unit_to_edge)


def report_load(channel: grpc.aio.Channel) -> Opener[AgentLoad, LoadReply]:
    """Worker agent -> edge of its region."""
    return _opener(channel, f"/{_LOAD}/ReportLoad", load.encode_agent_load, load.decode_load_reply)


def exchange_load(channel: grpc.aio.Channel) -> Opener[RegionBroadcast, LoadReply]:
    """Edge -> edge of another region."""
    return _opener(channel, f"/{_LOAD}/ExchangeLoad", load.encode_region_broadcast, load.decode_load_reply)


async def read_prompt(channel: grpc.aio.Channel, request: ReadRequest, timeout_s: float) -> ReadReply:
    """Worker agent -> edge of its region. Errors: `grpc.aio.AioRpcError`, `ProtocolError`."""
    ask = cast(
        "grpc.aio.UnaryUnaryMultiCallable[ReadRequest, ReadReply | None]",
        channel.unary_unary(f"/{_PROMPTS}/Read", prompt.encode_read_request, prompt.decode_read_reply),
    )
    reply = await ask(request, timeout=timeout_s)
    if reply is None:
        raise ProtocolError(
            "a message could not be decoded; the other side differs in version", field="message"
        )
    return reply


async def read(call: grpc.aio.StreamStreamCall[_Sent, _Received]) -> _Received | None:
    """The client's next message; None when the server has ended the stream.

    Errors: `grpc.aio.AioRpcError` when the stream broke, `ProtocolError` when the message is malformed (gRPC
    logs what the decoder said, and hands out nothing).
    """
    message = cast("_Received | None", await call.read())
    if message is _END:
        return None
    if message is None:
        raise ProtocolError(
            "a message could not be decoded; the other side differs in version", field="message"
        )
    return message


def _subscribe_handler(service: ViewSubscriptions) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.stream_stream_rpc_method_handler(
        service.subscribe, index.decode_edge_to_unit, index.encode_unit_to_edge
    )


def _opener(
    channel: grpc.aio.Channel,
    method: str,
    encode: Callable[[_Sent], bytes],
    decode: Callable[[bytes], _Received],
) -> Opener[_Sent, _Received]:
    return cast("Opener[_Sent, _Received]", channel.stream_stream(method, encode, decode))
