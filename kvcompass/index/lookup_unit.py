"""The lookup unit: one prompt's keys against every worker, in one kernel call (paper 3.2)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import KVCompassError
from kvcompass.index.view import IndexView
from kvcompass.kernels.lookup import match_keys
from kvcompass.levels import QueryPlan
from kvcompass.plan.model import Plan


@dataclass(frozen=True, slots=True)
class WorkerMap:
    """Where each worker of the plan has its field: int32[workers] each."""

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


class LookupUnit:
    """Reads a view on behalf of one region's edge. Holds what never changes between requests."""

    def __init__(
        self, view: IndexView, query_plan: QueryPlan, workers: WorkerMap, origin_region: int
    ) -> None:
        self._view = view
        self._workers = len(workers.table)
        self._rungs = np.array(query_plan.rungs, np.int32)
        self._queried = np.array(query_plan.queried[origin_region], np.bool_)
        self._guard = np.array(query_plan.guard[origin_region], np.int32)
        tables, slots = view.shape.tables, view.shape.worker_slots
        if workers.table.max(initial=0) >= tables or workers.slot.max(initial=0) >= slots:
            raise KVCompassError(
                f"a worker lies outside the index's {tables} tables of {slots} slots", field="worker.table"
            )
        self._table_region = np.zeros(tables, np.int32)
        self._table_region[workers.table] = workers.region
        self._field_worker = np.full((tables, slots), -1, np.int32)
        self._field_worker[workers.table, workers.slot] = np.arange(self._workers)
        in_use = (self._field_worker >= 0).astype(np.uint64)
        self._table_fields = (in_use << (np.arange(slots, dtype=np.uint64) * np.uint64(2))).sum(axis=1)

    def match(self, keys: NDArray[np.uint64]) -> Matches:
        """Longest match of every worker.

        Args:
            keys: uint64[n], the keys of the query plan's first n rungs: those of at most L-1 tokens.
        """
        view = self._view
        matches = Matches.none(self._workers)
        match_keys(
            view.words,
            view.directory,
            view.present,
            np.array(keys, np.uint64),
            self._rungs,
            self._queried,
            self._guard,
            self._table_region,
            self._table_fields,
            self._field_worker,
            matches.match_tokens,
            matches.tier,
        )
        return matches
