"""The gRPC methods of `proto/kvcompass/v1`, spoken in core messages.

Both ends use these, so that no service sees protobuf: a client gets a callable on a channel, a server
registers an object with one method a stream. Malformed bytes end the stream; the decoder's `ProtocolError` says
why.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeAlias

import grpc
import grpc.aio

from kvcompass.roles.messages import (
    AgentLoad,
    AgentToUnit,
    EdgeToUnit,
    LoadReply,
    RegionBroadcast,
    UnitToAgent,
    UnitToEdge,
)
from services.wire import index, load

_INDEX = "kvcompass.v1.IndexMaintenance"
_LOAD = "kvcompass.v1.LoadExchange"

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class IndexMaintenance(Protocol):
    """What a maintenance unit serves. Each method is an async generator; its end ends the stream."""

    def report(self, messages: AsyncIterator[AgentToUnit], context: Context) -> AsyncIterator[UnitToAgent]:
        """One stream a (worker, unit)."""
        ...

    def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: Context) -> AsyncIterator[UnitToEdge]:
        """One stream a (subscriber, unit)."""
        ...


class LoadExchange(Protocol):
    """What an edge serves."""

    def report_load(self, messages: AsyncIterator[AgentLoad], context: Context) -> AsyncIterator[LoadReply]:
        """One stream a worker of the edge's region."""
        ...

    def exchange_load(
        self, messages: AsyncIterator[RegionBroadcast], context: Context
    ) -> AsyncIterator[LoadReply]:
        """One stream an edge of another region."""
        ...


def register_index_maintenance(server: grpc.aio.Server, service: IndexMaintenance) -> None:
    """Serves `service` on a server that has not started."""
    handlers = {
        "Report": grpc.stream_stream_rpc_method_handler(
            service.report, index.decode_agent_to_unit, index.encode_unit_to_agent
        ),
        "Subscribe": grpc.stream_stream_rpc_method_handler(
            service.subscribe, index.decode_edge_to_unit, index.encode_unit_to_edge
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_INDEX, handlers),))


def register_load_exchange(server: grpc.aio.Server, service: LoadExchange) -> None:
    """Serves `service` on a server that has not started."""
    handlers = {
        "ReportLoad": grpc.stream_stream_rpc_method_handler(
            service.report_load, load.decode_agent_load, load.encode_load_reply
        ),
        "ExchangeLoad": grpc.stream_stream_rpc_method_handler(
            service.exchange_load, load.decode_region_broadcast, load.encode_load_reply
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_LOAD, handlers),))


def report(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[AgentToUnit, UnitToAgent]:
    """Worker agent -> maintenance unit: `call = report(channel)()`, then `call.write` and `call.read`."""
    return channel.stream_stream(f"/{_INDEX}/Report", index.encode_agent_to_unit, index.decode_unit_to_agent)


def subscribe(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[EdgeToUnit, UnitToEdge]:
    """Edge -> maintenance unit."""
    return channel.stream_stream(f"/{_INDEX}/Subscribe", index.encode_edge_to_unit, index.decode_unit_to_edge)


def report_load(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[AgentLoad, LoadReply]:
    """Worker agent -> edge of its region."""
    return channel.stream_stream(f"/{_LOAD}/ReportLoad", load.encode_agent_load, load.decode_load_reply)


def exchange_load(
    channel: grpc.aio.Channel,
) -> grpc.aio.StreamStreamMultiCallable[RegionBroadcast, LoadReply]:
    """Edge -> edge of another region."""
    return channel.stream_stream(
        f"/{_LOAD}/ExchangeLoad", load.encode_region_broadcast, load.decode_load_reply
    )
