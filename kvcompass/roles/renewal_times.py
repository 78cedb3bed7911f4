"""When a lease is to be renewed: by the plan, by what the unit told, and by whether the engine answers."""

from typing import Final

RENEWALS_A_LEASE: Final = 3
"""So one may be late or lost, and the next still comes in time."""
RENEWED_AGAIN: Final = 0.1
"""Of the time between renewals: until it is looked again whether a silent engine has answered."""


class RenewalTimes:
    """Of the stream from one worker to one unit.

    A unit goes by the longer of two versions' leases until it has settled the plan, and then by the new one,
    on streams that stay open. So the shorter one, and what the unit told if that is shorter still, is gone by
    before any unit does.
    """

    def __init__(self, lease_ms: int) -> None:
        """`lease_ms` is the plan's. The first renewal is due at once."""
        self._planned_ms = lease_ms
        self._shortest_ms = lease_ms
        """Of the versions that may hold."""
        self.told_ms = 0
        """The unit's, as it told it; 0 before."""
        self._looked_us: int | None = None
        self._renewed = False

    def apply_plan(self, lease_ms: int) -> None:
        """The next version of the plan has this lease; until `settle_plan` the shorter one is kept."""
        self._planned_ms = lease_ms
        self._shortest_ms = min(self._shortest_ms, lease_ms)

    def settle_plan(self) -> None:
        """The lease of the version before holds nowhere any more, but on streams whose unit told it."""
        self._shortest_ms = self._planned_ms

    def begin(self) -> None:
        """A stream begins or has ended: the first renewal of the next is due at once."""
        self._looked_us = None

    @property
    def due_us(self) -> int:
        """When to look next whether to renew, on the clock of `looked`; 0 at first."""
        if self._looked_us is None:
            return 0
        period_us = self._period_us
        return self._looked_us + (period_us if self._renewed else round(RENEWED_AGAIN * period_us))

    def looked(self, now_us: int, *, renewed: bool) -> None:
        """It was looked, and renewed or, the engine being silent, not."""
        self._looked_us = now_us
        self._renewed = renewed

    @property
    def _period_us(self) -> int:
        return min(self._shortest_ms, self.told_ms or self._shortest_ms) * 1_000 // RENEWALS_A_LEASE
