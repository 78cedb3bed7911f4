"""Latency-derived indexed lengths: where a worker registers and what an edge asks (paper 3.2)."""

from kvcompass.levels.clipped import Clipped, clipped_lengths
from kvcompass.levels.first_length import first_length
from kvcompass.levels.ladder import ladder
from kvcompass.levels.query_plan import QueryPlan, query_plan, registered_lengths

__all__ = [
    "Clipped",
    "QueryPlan",
    "clipped_lengths",
    "first_length",
    "ladder",
    "query_plan",
    "registered_lengths",
]
