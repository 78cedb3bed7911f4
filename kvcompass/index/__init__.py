"""The multi-level Ludo index: a writer a shard, a keyless view an edge, and the bytes between them."""

from kvcompass.index.lookup_unit import Lookup, LookupUnit, Matches, WorkerMap
from kvcompass.index.patches import ApplyResult, Patches
from kvcompass.index.shape import IndexShape, index_shape
from kvcompass.index.shard_tables import ShardTables
from kvcompass.index.view import IndexView

__all__ = [
    "ApplyResult",
    "IndexShape",
    "IndexView",
    "Lookup",
    "LookupUnit",
    "Matches",
    "Patches",
    "ShardTables",
    "WorkerMap",
    "index_shape",
]
