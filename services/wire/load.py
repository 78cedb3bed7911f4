"""`proto/kvcompass/v1/load.proto` <-> core types, between bytes and core types.

Decoders raise `ProtocolError` naming the field that is malformed; unknown fields are ignored.
"""

import math
from functools import lru_cache
from typing import assert_never

import numpy as np

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import LOAD_ROW, RegionLoad, WorkerLoad, WorkerState
from kvcompass.roles.messages import (
    PREFILL_ANSWERS_MOST,
    PREFILL_DEADLINE_MS_MOST,
    PREFILL_TOKENS_MOST,
    Acknowledgement,
    AgentLoad,
    LoadReply,
    PrefillAnswer,
    PrefillOutcome,
    Refusal,
    RegionBroadcast,
    ReplicaPrefill,
)
from services.wire.index import (
    acknowledgement_to_pb,
    handshake_from_pb,
    handshake_to_pb,
    refusal_from_pb,
    refusal_to_pb,
)
from services.wire.parsing import parsed
from services.wire.pb import load_pb2 as pb

_STATES = {int(state): state for state in WorkerState}
_TOKEN_ID = np.dtype("<u4")
_TOKEN_IDS_MOST = 1 << 31
_NUMBERS = {outcome: pb.PrefillOutcome.Value(f"PREFILL_OUTCOME_{outcome.name}") for outcome in PrefillOutcome}
_OUTCOMES = {int(number): outcome for outcome, number in _NUMBERS.items()}


def encode_agent_load(message: AgentLoad) -> bytes:
    """Core message -> protobuf bytes."""
    envelope = pb.AgentLoad(
        handshake=None if message.handshake is None else handshake_to_pb(message.handshake),
        epoch=message.epoch,
        sequence=message.sequence,
        load=_worker_to_pb(*message.load),
        takes_prefills=message.takes_prefills,
        prefill_answers=[_answer_to_pb(answer) for answer in message.prefill_answers],
    )
    return envelope.SerializeToString()


def decode_agent_load(data: bytes) -> AgentLoad:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.AgentLoad(), data)
    return AgentLoad(
        handshake_from_pb(envelope.handshake) if envelope.HasField("handshake") else None,
        envelope.epoch,
        envelope.sequence,
        WorkerLoad(envelope.load.worker_id, *_row_from_pb(envelope.load)),
        envelope.takes_prefills,
        _answers_from_pb(envelope) if envelope.prefill_answers else (),
    )


def encode_region_broadcast(message: RegionBroadcast) -> bytes:
    """Core message -> protobuf bytes."""
    vector = encode_region_load(message.load)
    if message.handshake is None:
        return vector
    # The bytes of two messages one after the other are those of both merged.
    return pb.RegionLoad(handshake=handshake_to_pb(message.handshake)).SerializeToString() + vector


def decode_region_broadcast(data: bytes) -> RegionBroadcast:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.RegionLoad(), data)
    handshake = handshake_from_pb(envelope.handshake) if envelope.HasField("handshake") else None
    return RegionBroadcast(handshake, _region_from_pb(envelope))


@lru_cache(maxsize=1)
def encode_region_load(load: RegionLoad) -> bytes:
    """A queue vector without a handshake: the piggyback of a forwarded response.

    A broadcast goes to every other region; it is encoded once.
    """
    rows = zip(load.workers, load.rows.tolist(), strict=True)
    return pb.RegionLoad(
        edge_id=load.edge_id,
        region=load.region,
        epoch=load.epoch,
        sequence=load.sequence,
        loads=[_worker_to_pb(worker_id, *row) for worker_id, row in rows],
    ).SerializeToString()


def decode_region_load(data: bytes) -> RegionLoad:
    """The piggyback of a forwarded response."""
    return _region_from_pb(parsed(pb.RegionLoad(), data))


def encode_load_reply(message: LoadReply) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case Acknowledgement():
            return pb.LoadReply(acknowledgement=acknowledgement_to_pb(message)).SerializeToString()
        case Refusal():
            return pb.LoadReply(refusal=refusal_to_pb(message)).SerializeToString()
        case ReplicaPrefill():
            prefill = pb.ReplicaPrefill(
                id=message.id,
                sharing_group=message.sharing_group,
                token_ids=message.tokens.astype(_TOKEN_ID).tobytes(),
                deadline_ms=message.deadline_ms,
            )
            return pb.LoadReply(replica_prefill=prefill).SerializeToString()
        case _:
            assert_never(message)


def decode_load_reply(data: bytes) -> LoadReply:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.LoadReply(), data)
    match envelope.WhichOneof("message"):
        case "acknowledgement":
            return Acknowledgement(envelope.acknowledgement.sequence)
        case "refusal":
            return refusal_from_pb(envelope.refusal)
        case "replica_prefill":
            return _prefill_from_pb(envelope.replica_prefill)
        case _:
            raise ProtocolError("a LoadReply of a kind this version does not know", field="LoadReply")


def _prefill_from_pb(message: pb.ReplicaPrefill) -> ReplicaPrefill:
    size, field = len(message.token_ids), "replica_prefill.token_ids"
    if not size or size % _TOKEN_ID.itemsize or size > PREFILL_TOKENS_MOST * _TOKEN_ID.itemsize:
        raise ProtocolError(f"{size} bytes are not 1 to {PREFILL_TOKENS_MOST} token ids", field=field)
    ids = np.frombuffer(message.token_ids, _TOKEN_ID)
    if int(ids.max()) >= _TOKEN_IDS_MOST:
        raise ProtocolError(f"{ids.max()} is no token id", field=field)
    if not 1 <= message.deadline_ms <= PREFILL_DEADLINE_MS_MOST:
        raise ProtocolError(
            f"{message.deadline_ms} is not in 1 to {PREFILL_DEADLINE_MS_MOST}",
            field="replica_prefill.deadline_ms",
        )
    return ReplicaPrefill(message.id, message.sharing_group, ids.astype(np.int32), message.deadline_ms)


def _answer_to_pb(answer: PrefillAnswer) -> pb.PrefillAnswer:
    number = pb.PREFILL_OUTCOME_UNSPECIFIED if answer.outcome is None else _NUMBERS[answer.outcome]
    return pb.PrefillAnswer(id=answer.id, outcome=number, tokens=answer.tokens)


def _answers_from_pb(message: pb.AgentLoad) -> tuple[PrefillAnswer, ...]:
    if len(message.prefill_answers) > PREFILL_ANSWERS_MOST:
        raise ProtocolError(f"more than {PREFILL_ANSWERS_MOST}", field="prefill_answers")
    return tuple(
        PrefillAnswer(answer.id, _OUTCOMES.get(answer.outcome), answer.tokens)
        for answer in message.prefill_answers
    )


def _worker_to_pb(
    worker_id: str,
    state: int,
    queue_ms: float,
    running: int,
    waiting: int,
    used_tokens: int,
    max_tokens: int,
    prefill_ms_per_token: float,
    age_ms: int,
) -> pb.WorkerLoad:
    return pb.WorkerLoad(
        worker_id=worker_id,
        state=pb.WorkerState.ValueType(state),
        queue_ms=queue_ms,
        running=running,
        waiting=waiting,
        used_tokens=used_tokens,
        max_tokens=max_tokens,
        prefill_ms_per_token=prefill_ms_per_token,
        age_ms=age_ms,
    )


def _row_from_pb(message: pb.WorkerLoad) -> tuple[WorkerState, float, int, int, int, int, float, int]:
    """A load less its worker's id.

    A state of a newer version reads as UNREACHABLE: no request is sent where we do not understand.
    """
    return (
        _STATES.get(message.state, WorkerState.UNREACHABLE),
        _finite(message.queue_ms, "load.queue_ms"),
        message.running,
        message.waiting,
        message.used_tokens,
        message.max_tokens,
        _finite(message.prefill_ms_per_token, "load.prefill_ms_per_token"),
        message.age_ms,
    )


def _region_from_pb(message: pb.RegionLoad) -> RegionLoad:
    return RegionLoad(
        message.edge_id,
        message.region,
        message.epoch,
        message.sequence,
        tuple([load.worker_id for load in message.loads]),
        np.array([_row_from_pb(load) for load in message.loads], LOAD_ROW),
    )


def _finite(value: float, field: str) -> float:
    if not 0.0 <= value < math.inf:
        raise ProtocolError(f"{value} is not a finite, non-negative number", field=field)
    return value
