"""Bytes of messages on the wire, to within some bytes: numbers are varints there, of about the widths below.

A test compares them with what `services/wire` encodes.
"""

from typing import assert_never

from kvcompass.fleet.load import RegionLoad, WorkerLoad
from kvcompass.roles.messages import (
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    PatchGroups,
    Refusal,
    Renewal,
    SnapshotChunk,
    Unavailable,
    UnitToEdge,
    Watermark,
)

HANDSHAKE: int = 400
"""Ids, versions and the layout, field by field."""
ACKNOWLEDGEMENT: int = 6
PEER_HEADERS: int = 512
"""HTTP headers of a request or an answer between edges."""
TOKEN: int = 4
"""Text of a token."""

_KEY = 9
"""A key and its tier."""
_ENVELOPE = 12
"""Tags, lengths, a sequence."""
_STREAM = 24
"""The same with an epoch."""
_DIGEST = 10
_LOAD = 28
"""A worker's load, less its id."""


def agent_to_unit(message: AgentToUnit) -> int:
    """Size of a message of a Report stream."""
    match message:
        case Edits() | FullReport():
            return _ENVELOPE + _KEY * message.keys.size
        case Renewal():
            return _ENVELOPE + _DIGEST
        case AgentHello():
            return HANDSHAKE + _ENVELOPE + _DIGEST
        case _:
            assert_never(message)


def unit_to_edge(message: UnitToEdge) -> int:
    """Size of a message of a Subscribe stream."""
    match message:
        case PatchGroups():
            return _STREAM + len(message.payload)
        case SnapshotChunk():
            return _STREAM + _DIGEST + len(message.payload)
        case Watermark():
            return _STREAM + _DIGEST
        case Refusal():
            return _ENVELOPE + len(message.field) + len(message.message)
        case Unavailable():
            return _ENVELOPE + len(message.reason)
        case _:
            assert_never(message)


def agent_load(load: WorkerLoad) -> int:
    """Size of an agent's report, without a handshake."""
    return _ENVELOPE + len(load.worker_id) + _LOAD


def region_load(load: RegionLoad) -> int:
    """Size of a region's queue vector, its workers' ids taken to be of one length."""
    ids = len(load.edge_id) + len(load.region)
    if load.workers:
        ids += len(load.workers) * (len(load.workers[0]) + _LOAD)
    return _ENVELOPE + ids


def piggyback(load: RegionLoad) -> int:
    """The same as the header of a response: base64."""
    return 4 * -(-region_load(load) // 3)
