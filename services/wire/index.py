"""`proto/kvcompass/v1/index.proto` <-> `kvcompass.roles.messages`, between bytes and core types.

Encoders cannot fail. Decoders raise `ProtocolError` naming the field that is malformed; unknown fields are
ignored, so that the next version of the protocol can add some.
"""

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import ProtocolError
from kvcompass.roles import messages as core
from kvcompass.tier import Tier
from services.wire.parsing import parsed
from services.wire.pb import index_pb2 as pb

# --- worker agent -> maintenance unit -------------------------------------------------------------


def encode_agent_to_unit(message: core.AgentToUnit) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case core.Edits():
            edits = pb.Edits(
                sequence=message.sequence, keys=_pack_keys(message.keys), tiers=message.tiers.tobytes()
            )
            return pb.AgentToUnit(edits=edits).SerializeToString()
        case core.FullReport():
            report = pb.FullReport(
                sequence=message.sequence,
                keys=_pack_keys(message.keys),
                tiers=message.tiers.tobytes(),
                first=message.first,
                last=message.last,
            )
            return pb.AgentToUnit(full_report=report).SerializeToString()
        case core.Renewal():
            return pb.AgentToUnit(renewal=_renewal_to_pb(message)).SerializeToString()
        case core.AgentHello():
            hello = pb.AgentHello(
                handshake=handshake_to_pb(message.handshake),
                worker_id=message.worker_id,
                holdings=_renewal_to_pb(message.holdings),
            )
            return pb.AgentToUnit(hello=hello).SerializeToString()
        case _:
            assert_never(message)


def decode_agent_to_unit(data: bytes) -> core.AgentToUnit:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.AgentToUnit(), data)
    match envelope.WhichOneof("message"):
        case "edits":
            edits = envelope.edits
            keys, tiers = _unpack_edits(edits.keys, edits.tiers, "edits")
            return core.Edits(edits.sequence, keys, tiers)
        case "full_report":
            report = envelope.full_report
            keys, tiers = _unpack_edits(report.keys, report.tiers, "full_report")
            return core.FullReport(report.sequence, keys, tiers, report.first, report.last)
        case "renewal":
            return _renewal_from_pb(envelope.renewal)
        case "hello":
            hello = envelope.hello
            return core.AgentHello(
                handshake_from_pb(hello.handshake), hello.worker_id, _renewal_from_pb(hello.holdings)
            )
        case _:
            raise _empty("AgentToUnit")


# --- maintenance unit -> worker agent -------------------------------------------------------------


def encode_unit_to_agent(message: core.UnitToAgent) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case core.Welcome():
            welcome = pb.Welcome(
                unit_epoch=message.unit_epoch,
                lease_ms=message.lease_ms,
                full_report_wanted=message.full_report_wanted,
            )
            return pb.UnitToAgent(welcome=welcome).SerializeToString()
        case core.ReportRequest():
            return pb.UnitToAgent(report_request=pb.ReportRequest(reason=message.reason)).SerializeToString()
        case core.Acknowledgement():
            return pb.UnitToAgent(acknowledgement=acknowledgement_to_pb(message)).SerializeToString()
        case core.Refusal():
            return pb.UnitToAgent(refusal=refusal_to_pb(message)).SerializeToString()
        case _:
            assert_never(message)


def decode_unit_to_agent(data: bytes) -> core.UnitToAgent:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.UnitToAgent(), data)
    match envelope.WhichOneof("message"):
        case "welcome":
            welcome = envelope.welcome
            return core.Welcome(welcome.unit_epoch, welcome.lease_ms, welcome.full_report_wanted)
        case "report_request":
            return core.ReportRequest(envelope.report_request.reason)
        case "acknowledgement":
            return core.Acknowledgement(envelope.acknowledgement.sequence)
        case "refusal":
            return refusal_from_pb(envelope.refusal)
        case _:
            raise _empty("UnitToAgent")


# --- edge -> maintenance unit ---------------------------------------------------------------------


def encode_edge_to_unit(message: core.EdgeToUnit) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case core.SubscribeRequest():
            subscribe = pb.SubscribeRequest(
                handshake=handshake_to_pb(message.handshake),
                unit_epoch=message.unit_epoch,
                applied_sequence=message.applied_sequence,
                shard=message.shard,
                loaded=message.loaded,
            )
            return pb.EdgeToUnit(subscribe=subscribe).SerializeToString()
        case core.Acknowledgement():
            return pb.EdgeToUnit(acknowledgement=acknowledgement_to_pb(message)).SerializeToString()
        case _:
            assert_never(message)


def decode_edge_to_unit(data: bytes) -> core.EdgeToUnit:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.EdgeToUnit(), data)
    match envelope.WhichOneof("message"):
        case "subscribe":
            subscribe = envelope.subscribe
            return core.SubscribeRequest(
                handshake_from_pb(subscribe.handshake),
                subscribe.unit_epoch,
                subscribe.applied_sequence,
                subscribe.shard,
                loaded=subscribe.loaded,
            )
        case "acknowledgement":
            return core.Acknowledgement(envelope.acknowledgement.sequence)
        case _:
            raise _empty("EdgeToUnit")


# --- maintenance unit -> edge ---------------------------------------------------------------------


def encode_unit_to_edge(message: core.UnitToEdge) -> bytes:
    """Core message -> protobuf bytes."""
    match message:
        case core.PatchGroups():
            patches = pb.Patches(
                unit_epoch=message.unit_epoch,
                first_sequence=message.first_sequence,
                count=message.count,
                payload=message.payload,
            )
            return pb.UnitToEdge(patches=patches).SerializeToString()
        case core.SnapshotChunk():
            chunk = pb.SnapshotChunk(
                unit_epoch=message.unit_epoch,
                sequence=message.sequence,
                digest=message.digest,
                chunk=message.chunk,
                chunks=message.chunks,
                payload=message.payload,
            )
            return pb.UnitToEdge(snapshot=chunk).SerializeToString()
        case core.Watermark():
            watermark = pb.Watermark(
                unit_epoch=message.unit_epoch,
                sequence=message.sequence,
                digest=message.digest,
                unsettled=message.unsettled,
            )
            return pb.UnitToEdge(watermark=watermark).SerializeToString()
        case core.Refusal():
            return pb.UnitToEdge(refusal=refusal_to_pb(message)).SerializeToString()
        case core.Unavailable():
            unavailable = pb.Unavailable(reason=message.reason.value)
            return pb.UnitToEdge(unavailable=unavailable).SerializeToString()
        case _:
            assert_never(message)


def decode_unit_to_edge(data: bytes) -> core.UnitToEdge:
    """Protobuf bytes -> core message."""
    envelope = parsed(pb.UnitToEdge(), data)
    match envelope.WhichOneof("message"):
        case "patches":
            patches = envelope.patches
            if patches.first_sequence == 0 or patches.count == 0:
                raise ProtocolError("patches must be numbered from 1 and not be empty", field="patches.count")
            return core.PatchGroups(
                patches.unit_epoch, patches.first_sequence, patches.count, patches.payload
            )
        case "snapshot":
            chunk = envelope.snapshot
            if chunk.chunk >= chunk.chunks:
                raise ProtocolError(f"chunk {chunk.chunk} of {chunk.chunks}", field="snapshot.chunk")
            return core.SnapshotChunk(
                chunk.unit_epoch, chunk.sequence, chunk.digest, chunk.chunk, chunk.chunks, chunk.payload
            )
        case "watermark":
            watermark = envelope.watermark
            return core.Watermark(
                watermark.unit_epoch, watermark.sequence, watermark.digest, watermark.unsettled
            )
        case "refusal":
            return refusal_from_pb(envelope.refusal)
        case "unavailable":
            return core.Unavailable(_unavailable_reason(envelope.unavailable.reason))
        case _:
            raise _empty("UnitToEdge")


# --- parts shared with the load protocol ----------------------------------------------------------


def handshake_to_pb(handshake: core.Handshake) -> pb.Handshake:
    """The handshake that opens every stream."""
    return pb.Handshake(
        component_id=handshake.component_id,
        epoch=handshake.epoch,
        protocol_version=handshake.protocol_version,
        plan_version=handshake.plan_version,
        layout=handshake.layout,
    )


def handshake_from_pb(message: pb.Handshake) -> core.Handshake:
    """The handshake that opens every stream."""
    return core.Handshake(
        message.component_id,
        message.epoch,
        message.protocol_version,
        message.plan_version,
        dict(message.layout),
    )


def refusal_to_pb(refusal: core.Refusal) -> pb.Refusal:
    """A refused handshake or message."""
    return pb.Refusal(field=refusal.field, message=refusal.message)


def refusal_from_pb(message: pb.Refusal) -> core.Refusal:
    """A refused handshake or message."""
    return core.Refusal(message.field, message.message)


def acknowledgement_to_pb(acknowledgement: core.Acknowledgement) -> pb.Acknowledgement:
    """An applied sequence."""
    return pb.Acknowledgement(sequence=acknowledgement.sequence)


# --- inside ---------------------------------------------------------------------------------------


def _unavailable_reason(name: str) -> core.UnavailableReason:
    try:
        return core.UnavailableReason(name)
    except ValueError:
        return core.UnavailableReason.UNKNOWN


def _renewal_to_pb(renewal: core.Renewal) -> pb.Renewal:
    return pb.Renewal(
        sequence=renewal.sequence, holdings_digest=renewal.holdings_digest, holdings=renewal.holdings
    )


def _renewal_from_pb(message: pb.Renewal) -> core.Renewal:
    return core.Renewal(message.sequence, message.holdings_digest, message.holdings)


def _pack_keys(keys: NDArray[np.uint64]) -> bytes:
    return keys.astype("<u8", copy=False).tobytes()


def _unpack_edits(keys: bytes, tiers: bytes, field: str) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Writable copies: a compiled kernel refuses read-only arrays."""
    if len(keys) != 8 * len(tiers):
        raise ProtocolError(
            f"{len(keys)} bytes of keys for {len(tiers)} tiers; a key has 8 bytes", field=f"{field}.keys"
        )
    unpacked = np.frombuffer(keys, dtype="<u8").astype(np.uint64)
    if unpacked.size and int(unpacked.max()) >> 63:
        raise ProtocolError("a key has 63 bits", field=f"{field}.keys")
    unpacked_tiers = np.frombuffer(tiers, dtype=np.uint8).copy()
    if unpacked_tiers.size and int(unpacked_tiers.max()) > max(Tier):
        raise ProtocolError(f"a tier is at most {max(Tier)}", field=f"{field}.tiers")
    return unpacked, unpacked_tiers


def _empty(name: str) -> ProtocolError:
    return ProtocolError(f"a {name} of a kind this version does not know", field=name)
