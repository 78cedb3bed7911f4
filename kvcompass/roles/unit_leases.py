"""Leases of a unit's workers: whose agent is silent for one is cleared in every view (paper 3.2)."""

from collections.abc import Iterable, Mapping

from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.unit_bounds import UnitCounters
from kvcompass.roles.unit_edits import UnitEdits
from kvcompass.roles.unit_plan import UnitPlan
from kvcompass.roles.worker_source import WorkerSource


class UnitLeases:
    """Owns until when each worker has a lease, and what its end does."""

    def __init__(
        self,
        plan: UnitPlan,
        tables: ShardWriter,
        edits: UnitEdits,
        sources: Mapping[str, WorkerSource],
        *,
        counters: UnitCounters,
    ) -> None:
        """`sources` are the unit's; `counters` is counted into."""
        self._plan = plan
        self._tables = tables
        self._edits = edits
        self._sources = sources
        self._counters = counters
        self._draining = False

    def restore(self, worker_ids: Iterable[str], leases: int, now_us: int) -> None:
        """Workers that the tables hold something of at the start have so many leases until they are back."""
        for worker_id in worker_ids:
            self._sources[worker_id].lease_until_us = now_us + leases * self._plan.lease_us

    def new_agent(self, source: WorkerSource, now_us: int) -> None:
        """An agent of another epoch: one lease to report and renew in, unless a former agent's runs.

        What the worker has from `restore` is no agent's.
        """
        if source.lease_until_us is None or source.epoch == 0:
            source.lease_until_us = now_us + self._plan.lease_us
        source.lease_ended = False

    def renew(self, source: WorkerSource, told_us: int, now_us: int) -> None:
        """Its agent vouches for the worker, and renews again by the lease that it was told, `told_us`."""
        source.lease_until_us = now_us + max(self._plan.lease_us, told_us)
        source.lease_ended = False

    def stalled(self, duration_us: int) -> None:
        """The unit itself did not run for so long: renewals may wait unread, so leases end later by it."""
        for source in self._sources.values():
            if source.lease_until_us is not None:
                source.lease_until_us += duration_us

    def drain(self) -> None:
        """Leases end no more."""
        self._draining = True

    def end_due(self, now_us: int) -> None:
        """Ends those whose time has come: the worker holds nothing from now on."""
        if self._draining:
            return
        for source in self._sources.values():
            if source.lease_until_us is not None and source.lease_until_us <= now_us:
                source.lease_until_us = None
                source.lease_ended = True
                source.in_step = False
                source.report_requested_us = None
                self._edits.drop(source)
                self._tables.clear_worker(source.worker.table, source.worker.slot)
                self._counters.leases_ended += 1
