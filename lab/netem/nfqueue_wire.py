"""The netlink messages of NFQUEUE, as bytes. Layouts: linux/netlink.h and nfnetlink_queue.h."""

import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

ACCEPT: Final = 1
DROP: Final = 0

ERROR: Final = 2
"""Message type NLMSG_ERROR; with code 0 it is an acknowledgement."""
_SUBSYSTEM: Final = 3 << 8
PACKET: Final = _SUBSYSTEM | 0
_VERDICT: Final = _SUBSYSTEM | 1
_CONFIG: Final = _SUBSYSTEM | 2
_VERDICT_BATCH: Final = _SUBSYSTEM | 3

_REQUEST: Final = 1
_ACK: Final = 4
_COPY_PACKET: Final = 2
_FAIL_OPEN: Final = 1
_GSO: Final = 4
_IPV4_HEADER_BYTES: Final = 20

_ATTR_PACKET_HEADER: Final = 1
_ATTR_VERDICT_HEADER: Final = 2
_ATTR_PAYLOAD: Final = 10
_ATTR_CAPTURED_LENGTH: Final = 13

_HEAD: Final = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_QUEUE: Final = struct.Struct(">BBH")
"""nfgenmsg: family, version, queue."""
_ATTR: Final = struct.Struct("=HH")
_BODY: Final = _HEAD.size + _QUEUE.size


class Packet(NamedTuple):
    """A packet that waits for a verdict."""

    queue: int
    number: int
    """The kernel's, +1 a packet of a queue."""
    length: int
    """Bytes from the IP header on, of all segments that travel as one."""


def bind(queue: int) -> bytes:
    """Makes the sender the one that gives verdicts on `queue`."""
    return _config(queue, _attr(1, struct.pack(">BBH", 1, 0, socket.AF_INET)))


def copy_headers(queue: int) -> bytes:
    """Copies an IPv4 header of each packet only, and tells the packet's true length."""
    return _config(queue, _attr(2, struct.pack(">IB", _IPV4_HEADER_BYTES, _COPY_PACKET)))


def limit(queue: int, packets: int) -> bytes:
    """Drops packets beyond so many."""
    return _config(queue, _attr(3, struct.pack(">I", packets)))


def whole_segments(queue: int) -> bytes:
    """Leaves segmented offloads whole, and drops, rather than passes, what finds the queue full."""
    return _config(queue, _attr(5, struct.pack(">I", _GSO)) + _attr(4, struct.pack(">I", _FAIL_OPEN | _GSO)))


def verdict(queue: int, number: int, value: int) -> bytes:
    """Lets one packet pass, or drops it."""
    return _message(_VERDICT, _REQUEST, queue, _attr(_ATTR_VERDICT_HEADER, struct.pack(">II", value, number)))


def accept_up_to(queue: int, number: int) -> bytes:
    """Lets every packet of the queue pass that came no later than `number`, in order."""
    attribute = _attr(_ATTR_VERDICT_HEADER, struct.pack(">II", ACCEPT, number))
    return _message(_VERDICT_BATCH, _REQUEST, queue, attribute)


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Splits what a socket received into (type, what follows the netlink header)."""
    offset = 0
    while offset + _HEAD.size <= len(data):
        length, kind, _, _, _ = _HEAD.unpack_from(data, offset)
        if length < _HEAD.size:
            return
        yield kind, data[offset + _HEAD.size : offset + length]
        offset += _aligned(length)


def error_code(body: bytes) -> int:
    """The errno of an ERROR message; 0: an acknowledgement."""
    code: int = struct.unpack_from("=i", body)[0]
    return -code


def packet(body: bytes) -> Packet | None:
    """Reads the body of a PACKET message; None when it has no packet header."""
    _, _, queue = _QUEUE.unpack_from(body)
    number: int | None = None
    captured = payload = 0
    offset = _QUEUE.size
    while offset + _ATTR.size <= len(body):
        length, kind = _ATTR.unpack_from(body, offset)
        if length < _ATTR.size:
            break
        if kind == _ATTR_PACKET_HEADER:
            number = int.from_bytes(body[offset + 4 : offset + 8], "big")
        elif kind == _ATTR_CAPTURED_LENGTH:
            captured = int.from_bytes(body[offset + 4 : offset + 8], "big")
        elif kind == _ATTR_PAYLOAD:
            payload = length - _ATTR.size
        offset += _aligned(length)
    return None if number is None else Packet(queue, number, captured or payload)


def _config(queue: int, attributes: bytes) -> bytes:
    return _message(_CONFIG, _REQUEST | _ACK, queue, attributes)


def _message(kind: int, flags: int, queue: int, attributes: bytes) -> bytes:
    return _HEAD.pack(_BODY + len(attributes), kind, flags, 0, 0) + _QUEUE.pack(0, 0, queue) + attributes


def _attr(kind: int, payload: bytes) -> bytes:
    body = _ATTR.pack(_ATTR.size + len(payload), kind) + payload
    return body + bytes(-len(body) % 4)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
