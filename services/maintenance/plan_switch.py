"""A unit goes over to the next version of its plan."""

from collections.abc import Callable

from kvcompass.errors import KVCompassError
from kvcompass.index import index_shape
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit


class UnitPlanSwitch:
    """`services.runtime.plan_desk.PlannedComponent` of one unit. `changed` wakes its subscribers' streams."""

    def __init__(self, unit: MaintenanceUnit, changed: Callable[[], None]) -> None:
        self._unit = unit
        self._changed = changed

    def check_plan(self, plan: Plan) -> None:
        """Errors: KVCompassError.

        The shard is another unit's under this plan, a place is not free yet, or no edge can make its index.
        """
        index_shape(plan)
        if all((unit.id, unit.shard) != (self._unit.id, self._unit.shard) for unit in plan.units):
            raise KVCompassError(f"shard {self._unit.shard} is not {self._unit.id}'s any more", field="unit")
        self._unit.check_plan(plan)

    async def apply_plan(self, plan: Plan) -> None:
        """Knows the workers of both versions from now on."""
        self._unit.apply_plan(plan)
        self._changed()

    async def settle_plan(self) -> None:
        """Has workers that have left cleared everywhere."""
        self._unit.settle_plan()
        self._changed()
