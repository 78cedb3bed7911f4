"""The lookup unit: one prompt's keys against every worker, in one kernel call (paper 3.2)."""

from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import KVCompassError
from kvcompass.index.view import IndexView
from kvcompass.kernels.match import RUN, match_keys
from kvcompass.kernels.probes import PROBE, PROBES
from kvcompass.levels import QueryPlan
from kvcompass.plan.model import Plan


@dataclass(frozen=True, slots=True)
class WorkerMap:
    """Where each worker of the plan has its field: int32[workers] each; slot -1: it has none."""

    table: NDArray[np.int32]
    slot: NDArray[np.int32]
    region: NDArray[np.int32]

    @classmethod
    def of_plan(cls, plan: Plan) -> Self:
        """The map of a plan's workers, in the plan's order."""
        return cls(
            table=np.array([worker.table for worker in plan.workers], np.int32),
            slot=np.array([worker.slot for worker in plan.workers], np.int32),
            region=np.array([plan.region_index(worker.region) for worker in plan.workers], np.int32),
        )


@dataclass(frozen=True, slots=True)
class Matches:
    """What the view says every worker holds of one prompt. Arrays over the plan's workers."""

    match_tokens: NDArray[np.int32]
    """Longest prefix held without a gap, tokens; 0 for none."""
    tier: NDArray[np.uint8]
    """Tier at that length (`kvcompass.tier.Tier`)."""

    @classmethod
    def none(cls, workers: int) -> Self:
        """Nobody holds anything."""
        return cls(np.zeros(workers, np.int32), np.zeros(workers, np.uint8))


class Lookup(Protocol):
    """Finds matches; `LookupUnit` over an edge's view is one."""

    def match(self, keys: NDArray[np.uint64]) -> Matches:
        """Longest match at every worker for a prompt with these keys."""


class LookupUnit:
    """Reads a view on behalf of one region's edge. Holds what never changes between requests, and scratch."""

    def __init__(
        self, view: IndexView, query_plan: QueryPlan, workers: WorkerMap, origin_region: int
    ) -> None:
        self.workers: Final = len(workers.table)
        self._view = view
        tables, slots = view.shape.tables, view.shape.worker_slots
        placed = np.flatnonzero(workers.slot >= 0)
        if workers.table.max(initial=0) >= tables or workers.slot.max(initial=0) >= slots:
            raise KVCompassError(
                f"a worker lies outside the index's {tables} tables of {slots} slots", field="worker.table"
            )
        table_region = np.zeros(tables, np.int32)
        table_region[workers.table[placed]] = workers.region[placed]
        field_worker = np.full((tables, slots), -1, np.int32)
        field_worker[workers.table[placed], workers.slot[placed]] = placed
        in_use = (field_worker >= 0).astype(np.uint64)
        rungs = len(query_plan.rungs)
        self._fixed = (
            np.array(query_plan.rungs, np.int32),
            _levels_read(query_plan, origin_region),
            np.array(query_plan.guard[origin_region], np.int32),
            table_region,
            (in_use << (np.arange(slots, dtype=np.uint64) * np.uint64(2))).sum(axis=1),
            field_worker,
            np.zeros((PROBES, PROBE), np.uint64),
            np.zeros((rungs, 2), np.uint64),
            np.zeros(PROBES, np.int32),
            np.zeros((PROBES, RUN), np.int64),
            np.zeros((PROBES, 2), np.uint64),
        )

    def arguments(self, keys: NDArray[np.uint64], matches: Matches) -> tuple[Any, ...]:
        """Arguments of `match_keys`, for kernels that go on with what it finds.

        Args:
            keys: As of `match`.
            matches: Overwritten by the kernel.
        """
        view = self._view
        return (
            view.words,
            view.directory,
            view.present,
            np.array(keys, np.uint64),
            *self._fixed,
            matches.match_tokens,
            matches.tier,
        )

    def match(self, keys: NDArray[np.uint64]) -> Matches:
        """Longest match of every worker.

        Args:
            keys: uint64[n], the keys of the query plan's first n rungs: those of at most L-1 tokens.
        """
        matches = Matches.none(self.workers)
        match_keys(*self.arguments(keys, matches))
        return matches


def _levels_read(query_plan: QueryPlan, origin: int) -> NDArray[np.int32]:
    """int32[R, n]: the rungs read toward each region, queried or its guard, ascending; -1 after the last."""
    regions, rungs = query_plan.queried[origin].shape
    reads = np.full((regions, rungs), -1, np.int32)
    for region in range(regions):
        wanted = np.array(query_plan.queried[origin, region], np.bool_)
        guard = int(query_plan.guard[origin, region])
        if guard >= 0:
            wanted[guard] = True
        levels = np.flatnonzero(wanted)
        reads[region, : len(levels)] = levels
    return reads
