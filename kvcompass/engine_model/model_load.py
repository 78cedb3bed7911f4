"""What an engine tells of its load."""

from typing import NamedTuple


class QueueLoad(NamedTuple):
    """What of the load is counted all the time, so that asking costs next to nothing. See ModelLoad."""

    running: int
    waiting: int
    used_tokens: int
    capacity_tokens: int
    decoding: int
    waiting_uncached_tokens: int
    prefilled_tokens: int
    prefilled_us: int


class ModelLoad(NamedTuple):
    """The load at one instant. A tuple, because it is asked for often.

    Busy times are model time since the start, running work included.
    """

    running: int
    waiting: int
    waiting_tokens: int
    used_tokens: int
    """Of those admitted: prompts, and what is generated; not the room that is kept for the rest."""
    capacity_tokens: int
    decoding: int
    step_us: int
    """Time of a decode step of the batch as it is now; 0 when nothing decodes."""
    prefill_busy_us: int
    decode_busy_us: int
    """An iteration that does both counts as both."""
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    cached_host_tokens: int
    """Of the cached tokens, those that were loaded back from DRAM."""
    waiting_uncached_tokens: int
    """What of the waiting prompts is likely not cached, by the hit rate so far (SGLang's estimate too)."""
    prefilled_tokens: int
    """Prompt tokens computed by prefills that have ended, and"""
    prefilled_us: int
    """the time these took: two readings give the measured prefill rate."""
