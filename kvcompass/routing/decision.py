"""The answer of a policy, in terms an operator can follow."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.view import Standing
from kvcompass.tier import Tier


class Reason(Enum):
    """Why the chosen worker and no other; the first that holds, in this order."""

    ROUND_ROBIN = "round_robin"
    """The policy takes turns."""
    ONLY_SUSPECTED = "only_suspected"
    """Every candidate has just refused a connection; this one scores best among them."""
    ONLY_UNKNOWN_LOAD = "only_unknown_load"
    """No candidate has reported its load within the lease."""
    ONLY_CANDIDATE = "only_candidate"
    """Nobody else could take it."""
    EXPECTED_MATCH = "expected_match"
    """A request under way is about to leave a longer prefix there than the index knows of."""
    APPROXIMATE_MATCH = "approximate_match"
    """Its engine sends no events. It is taken to hold what was sent there lately; nobody has said so."""
    HOLDER_UNAVAILABLE = "holder_unavailable"
    """A longer match than any candidate's lies within reach, at a worker that is not one: out, suspected, of
    unknown load, or tried already."""
    LONGEST_MATCH_LOCAL = "longest_match_local"
    """Holds the longest match, in this region."""
    LONGEST_MATCH_REMOTE = "longest_match_remote"
    """Holds the longest match, in another region, and is worth the way."""
    LESS_LOADED = "less_loaded"
    """Others hold a longer match, but wait or decode longer."""
    NEARER = "nearer"
    """Others hold a longer match, but are farther away."""
    CHEAPER = "cheaper"
    """Others hold a longer match, but recompute or reload for longer."""
    NO_MATCH = "no_match"
    """Nobody within reach holds any of it, candidate or not; the soonest to finish it from scratch."""


class NoWorkerReason(Enum):
    """Why there is nowhere to send a request."""

    UNKNOWN_GROUP = "unknown_group"
    """No worker serves this sharing group."""
    NONE_LIVE = "none_live"
    """Every worker of the group is draining or unreachable."""
    ALL_TRIED = "all_tried"
    """The live ones have all failed this request."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One worker as the score saw it; ms and tokens."""

    worker: int
    worker_id: str
    region: str
    standing: Standing
    is_candidate: bool
    """False: listed to explain, but it could not have been chosen."""
    score_ms: float
    """Sum of `wan_charge_ms`, `queue_ms`, `recompute_ms`, `reload_ms` and `decode_ms`."""
    wan_charge_ms: float
    """WAN: the way there and, unless the plan says `one_way`, back."""
    queue_ms: float
    queue_age_ms: float | None
    """None when the worker never reported: `queue_ms` is then a stand-in."""
    recompute_ms: float
    reload_ms: float
    decode_ms: float
    """What its batch adds to the first decode steps."""
    match_tokens: int
    expected_tokens: int
    tier: Tier
    belief: float
    requests_in_flight: int
    """Requests of this edge."""
    approximate: bool = False
    """Its holdings are predicted: `expected_tokens` is all that is known, and it may be wrong."""


class Decision(NamedTuple):
    """Where a request goes, and why. A tuple, because that is made in a fifth of a dataclass's time."""

    worker: int
    """Index of the plan's workers."""
    worker_id: str
    region: str
    match_tokens: int
    """The claim: longest indexed match at the worker, tokens."""
    tier: Tier
    score_ms: float
    reason: Reason
    policy: str
    local_best_match: int
    """Longest indexed match in the origin region, tokens; of candidates and others of the group alike."""
    blind: bool
    """Taken although the index could not be read in full or in time."""
    prompt_tokens: int
    expected_tokens: int
    """What requests under way are expected to leave there, or it is taken to hold as its holdings are
    predicted; part of the score, never of the claim."""
    residual_ms: float
    """Prefill the worker is expected to do for this request."""
    capacity_price: float
    """lambda of this decision."""
    keys: NDArray[np.uint64]
    """uint64[n]: keys of the prompt at the first n rungs, for what it is going to leave at the worker."""
    candidates: tuple[Candidate, ...] = ()
    """When asked to explain: every worker, candidates first, best first."""

    @property
    def runners_up(self) -> tuple[Candidate, ...]:
        """The candidates that lost, best first; empty unless explained."""
        return tuple(c for c in self.candidates if c.is_candidate and c.worker != self.worker)


@dataclass(frozen=True, slots=True)
class NoWorker:
    """Nowhere to send the request."""

    reason: NoWorkerReason
    message: str
