"""`proto/kvcompass/v1/load.proto` <-> core types, between bytes and core types.

Decoders raise `ProtocolError` naming the field that is malformed; unknown fields are ignored.
"""

import math
from typing import TypeVar, assert_never

from google.protobuf.message import DecodeError, Message

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import RegionLoad, WorkerLoad, WorkerState
from kvcompass.roles.messages import Acknowledgement, AgentLoad, LoadReply, Refusal, RegionBroadcast
from services.wire.index import (
    acknowledgement_to_pb,
    handshake_from_pb,
    handshake_to_pb,
    refusal_from_pb,
    refusal_to_pb,
)
from services.wire.pb import load_pb2 as pb

_Message = TypeVar("_Message", bound=Message)
_STATES = {int(state): state for state in WorkerState}


def encode_agent_load(message: AgentLoad) -> bytes:
    """Core message -> protobuf bytes."""
    envelope = pb.AgentLoad(
        handshake=None if message.handshake is None else handshake_to_pb(message.handshake),
        epoch=message.epoch,
        sequence=message.sequence,
        load=_worker_to_pb(message.load),
    )
    return envelope.SerializeToString()


def decode_agent_load(data: bytes) -> AgentLoad:
    """Protobuf bytes -> core message."""
    envelope = _parsed(pb.AgentLoad(), data)
    return AgentLoad(
        handshake_from_pb(envelope.handshake) if envelope.HasField("handshake") else None,
        envelope.epoch,
        envelope.sequence,
        _worker_from_pb(envelope.load),
    )


def encode_region_broadcast(message: RegionBroadcast) -> bytes:
    """Core message -> protobuf bytes."""
    envelope = _region_to_pb(message.load)
    if message.handshake is not None:
        envelope.handshake.CopyFrom(handshake_to_pb(message.handshake))
    return envelope.SerializeToString()


def decode_region_broadcast(data: bytes) -> RegionBroadcast:
    """Protobuf bytes -> core message."""
    envelope = _parsed(pb.RegionLoad(), data)
    handshake = handshake_from_pb(envelope.handshake) if envelope.HasField("handshake") else None
    return RegionBroadcast(handshake, _region_from_pb(envelope))


def encode_region_load(load: RegionLoad) -> bytes:
    """The piggyback of a forwarded response: a queue vector without a handshake."""
    return _region_to_pb(load).SerializeToString()


def decode_region_load(data: bytes) -> RegionLoad:
    """The piggyback of a forwarded response."""
    return _region_from_pb(_parsed(pb.RegionLoad(), data))


def encode_load_reply(message: LoadReply) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case Acknowledgement():
            return pb.LoadReply(acknowledgement=acknowledgement_to_pb(message)).SerializeToString()
        case Refusal():
            return pb.LoadReply(refusal=refusal_to_pb(message)).SerializeToString()
        case _:
            assert_never(message)


def decode_load_reply(data: bytes) -> LoadReply:
    """Protobuf bytes -> core message."""
    envelope = _parsed(pb.LoadReply(), data)
    match envelope.WhichOneof("message"):
        case "acknowledgement":
            return Acknowledgement(envelope.acknowledgement.sequence)
        case "refusal":
            return refusal_from_pb(envelope.refusal)
        case _:
            raise ProtocolError("a LoadReply of a kind this version does not know", field="LoadReply")


def _worker_to_pb(load: WorkerLoad) -> pb.WorkerLoad:
    return pb.WorkerLoad(
        worker_id=load.worker_id,
        state=pb.WorkerState.ValueType(load.state),
        queue_ms=load.queue_ms,
        running=load.running,
        waiting=load.waiting,
        used_tokens=load.used_tokens,
        max_tokens=load.max_tokens,
        prefill_ms_per_token=load.prefill_ms_per_token,
        age_ms=load.age_ms,
    )


def _worker_from_pb(message: pb.WorkerLoad) -> WorkerLoad:
    """A state of a newer version reads as UNREACHABLE: no request is sent where we do not understand."""
    return WorkerLoad(
        worker_id=message.worker_id,
        state=_STATES.get(int(message.state), WorkerState.UNREACHABLE),
        queue_ms=_finite(message.queue_ms, "load.queue_ms"),
        running=message.running,
        waiting=message.waiting,
        used_tokens=message.used_tokens,
        max_tokens=message.max_tokens,
        prefill_ms_per_token=_finite(message.prefill_ms_per_token, "load.prefill_ms_per_token"),
        age_ms=message.age_ms,
    )


def _region_to_pb(load: RegionLoad) -> pb.RegionLoad:
    return pb.RegionLoad(
        edge_id=load.edge_id,
        region=load.region,
        epoch=load.epoch,
        sequence=load.sequence,
        loads=[_worker_to_pb(worker) for worker in load.loads],
    )


def _region_from_pb(message: pb.RegionLoad) -> RegionLoad:
    return RegionLoad(
        edge_id=message.edge_id,
        region=message.region,
        epoch=message.epoch,
        sequence=message.sequence,
        loads=tuple(_worker_from_pb(worker) for worker in message.loads),
    )


def _finite(value: float, field: str) -> float:
    if not math.isfinite(value) or value < 0:
        raise ProtocolError(f"{value} is not a finite, non-negative number", field=field)
    return value


def _parsed(message: _Message, data: bytes) -> _Message:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProtocolError(
            f"not a {type(message).__name__}: {error}", field=type(message).__name__
        ) from error
    return message
