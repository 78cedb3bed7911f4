"""Whom an edge follows for a shard: its maintenance unit, or another edge of the region.

Where `upstream` is "edge", an edge follows the first edge of its region, in the plan's order, that stands
before it and serves; so the first that is alive follows the units, and the others follow it. Where none
serves, the unit. Where a view is empty and `bootstrap` is "peer", the first snapshot comes from any edge of
the region: they are tried in order.

A view that is loaded follows the unit, or an edge that has proved, on a stream beside the present one, that
it serves. No other edge is ever tried, which might be silent: the unit is where it falls back to at once.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from kvcompass.plan.model import Plan
from kvcompass.roles.messages import PatchGroups, SnapshotChunk, SubscribeRequest, UnitToEdge, Watermark
from kvcompass.roles.resubscribe import ResubscribeReason

Bootstrap: TypeAlias = Literal["units", "peer"]
Upstream: TypeAlias = Literal["units", "edge"]

RETURN_AFTER_US: Final = 5_000_000
"""After an edge failed, or did not serve, until it is asked again."""
DISTRUST_US: Final = 60_000_000
"""The same after it sent what was wrong: each time costs a snapshot from the unit."""

_WRONG: Final = (ResubscribeReason.DIGEST, ResubscribeReason.BROKEN, ResubscribeReason.EPOCH)


class SourceKind(StrEnum):
    """Who feeds a shard. A closed set: it is a metric's label."""

    UNIT = "unit"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Source:
    """Somebody who serves the shard."""

    kind: SourceKind
    id: str
    """In the plan."""
    address: str
    """host:port of the plan."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A Subscribe stream that is to be opened."""

    source: Source
    request: SubscribeRequest
    """Its first message."""


class UpstreamChoice:
    """State machine of one shard's choice. Its driver opens one stream at a time, to what `next` says."""

    def __init__(
        self,
        plan: Plan,
        edge_id: str,
        shard: int,
        *,
        bootstrap: Bootstrap = "units",
        upstream: Upstream = "units",
    ) -> None:
        """`edge_id`: of the edge that chooses."""
        unit = next(unit for unit in plan.units if unit.shard == shard)
        self.unit = Source(SourceKind.UNIT, unit.id, unit.address)
        self.source = self.unit
        """The one chosen last."""
        self.fallbacks: Counter[ResubscribeReason] = Counter()
        """Streams of edges that were left for the unit, by why."""
        self._edge_id = edge_id
        self._bootstrap = bootstrap
        self._upstream = upstream
        self._before, self._neighbours = self._edges_to_follow(plan)
        self._proved: Source | None = None
        """The edge that the present stream is being left for."""
        self._not_until_us: dict[Source, int] = {}

    def apply_plan(self, plan: Plan) -> None:
        """Choose among the edges of this plan; a stream to one that has left is left at its next message."""
        self._before, self._neighbours = self._edges_to_follow(plan)
        edges = self.edges
        self._not_until_us = {edge: due for edge, due in self._not_until_us.items() if edge in edges}

    @property
    def edges(self) -> list[Source]:
        """Every edge that may be followed."""
        return list(dict.fromkeys(self._before + self._neighbours))

    def edges_of(self, plan: Plan) -> list[Source]:
        """Every edge that might be followed under another plan."""
        before, neighbours = self._edges_to_follow(plan)
        return list(dict.fromkeys(before + neighbours))

    @property
    def may_probe(self) -> bool:
        """There may be edges, of this plan or another, that it would rather follow than the unit."""
        return self._upstream == "edge"

    def next(self, *, loaded: bool, now_us: int) -> Source:
        """Whom to open a stream to. `loaded`: the view has a snapshot already."""
        proved, self._proved = self._proved, None
        if loaded:
            self.source = proved if proved in self._before else self.unit
        else:
            due = (each for each in self._neighbours if self._is_due(each, now_us))
            self.source = next(due, self.unit)
        return self.source

    def may_stay(self, *, loaded: bool) -> bool:
        """Whether the present source is still one to follow.

        An edge is not that was to give the first snapshot only, nor one that the plan has no more.
        """
        return self.source == self.unit or not loaded or self.source in self._before

    def ended(self, reason: ResubscribeReason, *, loaded: bool, now_us: int) -> None:
        """The stream of the present source has ended."""
        if reason is not ResubscribeReason.MOVED:
            self._proved = None
        if self.source == self.unit or reason is ResubscribeReason.MOVED:
            return
        self.fallbacks[reason] += 1
        self._avoid(self.source, reason, now_us)
        if loaded and reason is not ResubscribeReason.UNAVAILABLE:
            for each in self._before:
                self._not_until_us[each] = max(self._not_until_us.get(each, 0), now_us + RETURN_AFTER_US)

    def to_probe(self, now_us: int) -> Source | None:
        """The edge to ask, beside the present stream, whether it serves; None when there is none to ask now.

        Precondition: the view is loaded. Answer with `probed`; where that cannot be, for the present stream
        has ended, the edge is asked again as if it had not served, and others have their turn.
        """
        better = self._before
        if self.source in self._before:
            better = self._before[: self._before.index(self.source)]
        source = next((each for each in better if self._is_due(each, now_us)), None)
        if source is not None:
            self._avoid(source, ResubscribeReason.UNAVAILABLE, now_us)
        return source

    def probed(
        self,
        source: Source,
        request: SubscribeRequest,
        answer: UnitToEdge | None,
        now_us: int,
        *,
        starved: bool,
    ) -> bool:
        """Whether the present stream is to be left for that edge. `answer`: its first; None for silence.

        It serves if it goes on from where the view was: with patches, or with word of the same epoch; and if
        the view is `starved`, with a snapshot too: the present stream brings nothing.
        """
        goes_on = isinstance(answer, PatchGroups | Watermark) and answer.unit_epoch == request.unit_epoch
        if goes_on or (starved and isinstance(answer, SnapshotChunk)):
            self._not_until_us.pop(source, None)
            self._proved = source
            return True
        self._avoid(source, ResubscribeReason.UNAVAILABLE, now_us)
        return False

    def _edges_to_follow(self, plan: Plan) -> tuple[list[Source], list[Source]]:
        """The edges before this one, and all neighbours, as far as settings have them followed."""
        region = next((edge.region for edge in plan.edges if edge.id == self._edge_id), None)
        edges = [edge for edge in plan.edges if edge.region == region]
        place = next((number for number, edge in enumerate(edges) if edge.id == self._edge_id), 0)
        sources = [Source(SourceKind.EDGE, edge.id, edge.grpc_address) for edge in edges]
        return (
            sources[:place] if self._upstream == "edge" else [],
            sources[:place] + sources[place + 1 :] if self._bootstrap == "peer" else [],
        )

    def _is_due(self, source: Source, now_us: int) -> bool:
        return now_us >= self._not_until_us.get(source, now_us)

    def _avoid(self, source: Source, reason: ResubscribeReason, now_us: int) -> None:
        pause_us = DISTRUST_US if reason in _WRONG else RETURN_AFTER_US
        self._not_until_us[source] = now_us + pause_us
