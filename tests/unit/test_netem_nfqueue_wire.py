"""Netlink messages: what is written is read, layouts are the kernel's, and rubbish is no packet."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from lab.netem import nfqueue_wire as wire

queues = st.integers(0, 65_535)
numbers = st.integers(0, (1 << 32) - 1)


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def delivered(queue: int, attributes: list[tuple[int, bytes]]) -> bytes:
    """A packet message as the kernel writes it (nfqnl_build_packet_message)."""
    body = struct.pack(">BBH", 2, 0, queue) + b"".join(attribute(*each) for each in attributes)
    return struct.pack("=IHHII", 16 + len(body), wire.PACKET, 0, 0, 0) + body


@given(
    queues, numbers, st.integers(20, 1 << 20), st.lists(st.tuples(st.integers(3, 9), st.binary(max_size=16)))
)
def test_a_packet_is_read_whatever_else_is_told(
    queue: int, number: int, length: int, others: list[tuple[int, bytes]]
) -> None:
    header = (1, struct.pack(">IHB", number, 0x0800, 0))
    length_if_longer = [(13, struct.pack(">I", length))] if length > 20 else []
    data = delivered(queue, [header, *others, *length_if_longer, (10, bytes(20))])
    [(kind, body)] = wire.messages(data)
    assert kind == wire.PACKET
    assert wire.packet(body) == wire.Packet(queue, number, length)


@given(queues, numbers, st.sampled_from((wire.ACCEPT, wire.DROP)))
def test_verdicts_say_queue_number_and_value(queue: int, number: int, value: int) -> None:
    one = wire.verdict(queue, number, value)
    assert one == struct.pack("=IHHII", 32, 0x0301, 1, 0, 0) + struct.pack(">BBH", 0, 0, queue) + struct.pack(
        "=HH", 12, 2
    ) + struct.pack(">II", value, number)
    many = wire.accept_up_to(queue, number)
    assert many == one[:4] + struct.pack("=H", 0x0303) + one[6:24] + struct.pack(">II", wire.ACCEPT, number)


@given(st.lists(st.tuples(queues, numbers), max_size=5))
def test_messages_in_one_buffer_are_taken_apart(sent: list[tuple[int, int]]) -> None:
    data = b"".join(wire.verdict(queue, number, wire.ACCEPT) for queue, number in sent)
    read = [
        (struct.unpack_from(">H", body, 2)[0], int.from_bytes(body[-4:], "big"))
        for _, body in wire.messages(data)
    ]
    assert read == sent


@given(st.binary(max_size=200))
def test_rubbish_is_taken_for_no_packet_and_ends(data: bytes) -> None:
    for _, body in wire.messages(data):
        if len(body) >= 4:
            wire.packet(body)


def test_the_requests_that_set_a_queue_up() -> None:
    """Golden bytes: accepted by a kernel, and equal to what libnetfilter_queue sends."""
    assert wire.bind(2).hex() == "1c00000002030500000000000000000000000002" + "08000100" + "01000002"
    assert wire.copy_headers(2)[20:].hex() == "09000200" + "0000001402" + "000000"
    assert wire.limit(2, 50_000)[20:].hex() == "08000300" + "0000c350"
    assert wire.whole_segments(2)[20:].hex() == "08000500" + "00000004" + "08000400" + "00000005"


def test_an_answer_tells_its_error() -> None:
    [(kind, body)] = wire.messages(struct.pack("=IHHIIi", 20, wire.ERROR, 0, 0, 0, -1))
    assert (kind, wire.error_code(body)) == (wire.ERROR, 1)
