"""Every message of the index protocol survives the wire; malformed bytes are refused by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.errors import ProtocolError
from kvcompass.roles import messages as m
from services.wire import index
from services.wire.pb import index_pb2 as pb

HANDSHAKE = m.Handshake("edge-us", 7, 1, 3, {"quantum": "128", "shards": "2"})
RENEWAL = m.Renewal(5, 2**64 - 1, 12)

PLAIN = [
    (index.encode_agent_to_unit, index.decode_agent_to_unit, m.AgentHello(HANDSHAKE, "us-0", RENEWAL)),
    (index.encode_agent_to_unit, index.decode_agent_to_unit, RENEWAL),
    (index.encode_unit_to_agent, index.decode_unit_to_agent, m.Welcome(9, 3_000, True)),
    (index.encode_unit_to_agent, index.decode_unit_to_agent, m.ReportRequest("gap")),
    (index.encode_unit_to_agent, index.decode_unit_to_agent, m.Acknowledgement(2**40)),
    (index.encode_unit_to_agent, index.decode_unit_to_agent, m.Refusal("quantum", "128 is not 256")),
    (
        index.encode_edge_to_unit,
        index.decode_edge_to_unit,
        m.SubscribeRequest(HANDSHAKE, 4, 99, 3, loaded=True),
    ),
    (index.encode_edge_to_unit, index.decode_edge_to_unit, m.Acknowledgement(1)),
    (index.encode_unit_to_edge, index.decode_unit_to_edge, m.SnapshotChunk(1, 2, 3, 0, 4, b"abc")),
    (index.encode_unit_to_edge, index.decode_unit_to_edge, m.PatchGroups(1, 2, 3, b"\x00\xff")),
    (index.encode_unit_to_edge, index.decode_unit_to_edge, m.Watermark(1, 2, 2**64 - 1)),
    (index.encode_unit_to_edge, index.decode_unit_to_edge, m.Watermark(1, 2, 3, unsettled=True)),
    (index.encode_unit_to_edge, index.decode_unit_to_edge, m.Refusal("plan_version", "too old")),
    *(
        (index.encode_unit_to_edge, index.decode_unit_to_edge, m.Unavailable(reason))
        for reason in m.UnavailableReason
    ),
]


@pytest.mark.parametrize(
    ("encode", "decode", "message"), PLAIN, ids=[type(message).__name__ for _, _, message in PLAIN]
)
def test_a_message_survives_the_wire(encode, decode, message):
    assert decode(encode(message)) == message


def test_a_reason_of_a_later_version_is_still_a_reason():
    data = pb.UnitToEdge(unavailable=pb.Unavailable(reason="leaving")).SerializeToString()
    assert index.decode_unit_to_edge(data) == m.Unavailable(m.UnavailableReason.UNKNOWN)


def test_a_request_of_the_version_before_names_the_first_shard():
    old = pb.SubscribeRequest(handshake=index.handshake_to_pb(HANDSHAKE), unit_epoch=4, applied_sequence=99)
    data = pb.EdgeToUnit(subscribe=old).SerializeToString()
    assert index.decode_edge_to_unit(data) == m.SubscribeRequest(HANDSHAKE, 4, 99, 0)


edits = st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2)), max_size=20)


@given(edits, st.integers(1, 2**63), st.booleans(), st.booleans())
def test_keys_and_tiers_survive_the_wire_and_are_writable(pairs, sequence, first, last):
    keys = np.array([key for key, _ in pairs], dtype=np.uint64)
    tiers = np.array([tier for _, tier in pairs], dtype=np.uint8)
    sent: list[m.AgentToUnit] = [
        m.Edits(sequence, keys, tiers),
        m.FullReport(sequence, keys, tiers, first, last),
    ]
    for message in sent:
        back = index.decode_agent_to_unit(index.encode_agent_to_unit(message))
        assert isinstance(back, m.Edits | m.FullReport)
        assert type(back) is type(message)
        assert back.sequence == sequence
        assert back.keys.dtype == np.uint64 and back.tiers.dtype == np.uint8
        assert back.keys.tolist() == keys.tolist()
        assert back.tiers.tolist() == tiers.tolist()
        assert back.keys.flags.writeable and back.tiers.flags.writeable
        if isinstance(back, m.FullReport):
            assert (back.first, back.last) == (first, last)


def test_the_packed_keys_are_little_endian_words():
    data = index.encode_agent_to_unit(m.Edits(1, np.array([1], np.uint64), np.array([2], np.uint8)))
    envelope = pb.AgentToUnit.FromString(data)
    assert envelope.edits.keys == b"\x01" + bytes(7)
    assert envelope.edits.tiers == b"\x02"


@pytest.mark.parametrize(
    ("envelope", "field"),
    [
        (pb.AgentToUnit(edits=pb.Edits(keys=bytes(8), tiers=b"")), "edits.keys"),
        (pb.AgentToUnit(edits=pb.Edits(keys=bytes(7), tiers=b"\x01")), "edits.keys"),
        (pb.AgentToUnit(edits=pb.Edits(keys=b"\xff" * 8, tiers=b"\x01")), "edits.keys"),
        (pb.AgentToUnit(edits=pb.Edits(keys=bytes(8), tiers=b"\x03")), "edits.tiers"),
        (pb.AgentToUnit(full_report=pb.FullReport(keys=bytes(8))), "full_report.keys"),
        (pb.AgentToUnit(), "AgentToUnit"),
    ],
)
def test_malformed_agent_messages_are_refused_by_name(envelope, field):
    with pytest.raises(ProtocolError) as caught:
        index.decode_agent_to_unit(envelope.SerializeToString())
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("envelope", "field"),
    [
        (pb.UnitToEdge(snapshot=pb.SnapshotChunk(chunk=1, chunks=1)), "snapshot.chunk"),
        (pb.UnitToEdge(snapshot=pb.SnapshotChunk()), "snapshot.chunk"),
        (pb.UnitToEdge(patches=pb.Patches(first_sequence=0, count=1)), "patches.count"),
        (pb.UnitToEdge(patches=pb.Patches(first_sequence=1, count=0)), "patches.count"),
        (pb.UnitToEdge(), "UnitToEdge"),
    ],
)
def test_malformed_unit_messages_are_refused_by_name(envelope, field):
    with pytest.raises(ProtocolError) as caught:
        index.decode_unit_to_edge(envelope.SerializeToString())
    assert caught.value.field == field


def test_bytes_that_are_no_protobuf_are_refused():
    with pytest.raises(ProtocolError):
        index.decode_agent_to_unit(b"\xff\xff\xff")


def test_fields_of_a_later_version_are_ignored():
    known = index.encode_unit_to_agent(m.ReportRequest("gap"))
    unknown_field_1000_varint = b"\xc0\x3e\x01"
    assert index.decode_unit_to_agent(known + unknown_field_1000_varint) == m.ReportRequest("gap")
