"""How well an agent knows its worker, in a word."""

from enum import Enum


class AgentState(Enum):
    """The first that holds, from the top: docs/engines.md says what to do about each."""

    UNREACHABLE = "unreachable"
    """The engine does not answer. Its lease is left to end; nothing is forgotten: it may be the network."""
    REFUSED = "refused"
    """The engine contradicts the plan (`refusal`). It is not indexed and takes no requests."""
    APPROXIMATE = "approximate"
    """By plan its holdings are predicted: it is not indexed, and each edge credits it with what it has sent
    there lately."""
    SILENT = "silent"
    """It serves requests and sends no events (`silence`). It is not indexed."""
    ATTACHING = "attaching"
    """The engine was not reached yet, or its past batches are being replayed."""
    PARTIAL = "partial"
    """Something was lost or left out: until the cache is cleared, it may hold more than is known."""
    EXACT = "exact"
    """Everything said since the engine started, or since it last cleared its cache, was taken in."""
