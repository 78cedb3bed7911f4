"""When the tables of a unit that has started may be served to all, and who is served before that."""

from collections.abc import Mapping

from kvcompass.roles.messages import SubscribeRequest
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.unit_plan import UnitPlan
from kvcompass.roles.worker_source import WorkerSource


class UnitSettling:
    """Owns whether every worker has reported in full, or has had its chance: then it is over."""

    def __init__(
        self,
        plan: UnitPlan,
        desk: UnitDesk,
        sources: Mapping[str, WorkerSource],
        *,
        bounds: UnitBounds,
        restored: RestoredFrom | None,
        started_us: int,
    ) -> None:
        """`sources` are the unit's; `restored`: what it began with, if not empty."""
        self._plan = plan
        self._desk = desk
        self._sources = sources
        self._bounds = bounds
        self._started_us = started_us
        self._draining = False
        self.restored = restored
        self.is_over = False
        desk.unsettled = restored is not None

    def drain(self) -> None:
        """Time settles nothing from here on."""
        self._draining = True

    def look(self, now_us: int) -> None:
        """Time alone ends the waiting for workers that are not there, not for a report under way."""
        if self.is_over:
            return
        leases = (now_us - self._started_us) // self._plan.lease_us
        awaited = [source for source in self._sources.values() if source.awaited]
        had_their_chance = not self._draining and (
            leases >= self._bounds.settle_reports_leases
            or (leases >= self._bounds.settle_leases and all(source.session is None for source in awaited))
        )
        self.is_over = not awaited or had_their_chance
        if self.is_over:
            self._desk.settled()

    def must_wait(self, request: SubscribeRequest) -> bool:
        """Whether a subscriber is given nothing until it is over: its view may know more than the tables."""
        return self.restored is None or self.restored.may_know_less_than(request)

    def may_serve(self, subscription: Subscription) -> bool:
        """Whether it is given something; one that is to end is told why."""
        return self.is_over or not subscription.waits or subscription.must_end
