"""Which plan a maintenance unit goes by, and what it allows while the one before is not settled."""

from kvcompass.plan.model import Plan


class UnitPlan:
    """The unit's version of the plan. From `apply` to `settle` the wider of two bounds holds."""

    def __init__(self, plan: Plan) -> None:
        """The plan that the unit starts with."""
        self.now = plan
        self.lease_us = plan.routing.lease_ms * 1_000
        """How long a worker's fields stay after its last renewal."""
        self.worker_keys_most = plan.worker_shard_entries_max
        """Keys that one worker may have in the shard."""

    @property
    def version(self) -> int:
        """Of the plan it goes by."""
        return self.now.plan_version

    def worker_ids(self) -> set[str]:
        """Workers of this version."""
        return {worker.id for worker in self.now.workers}

    def apply(self, plan: Plan) -> None:
        """The next version runs; agents and edges may go by the one before."""
        self.now = plan
        self.lease_us = max(self.lease_us, plan.routing.lease_ms * 1_000)
        self.worker_keys_most = max(self.worker_keys_most, plan.worker_shard_entries_max)

    def settle(self) -> None:
        """Everybody goes by this version."""
        self.lease_us = self.now.routing.lease_ms * 1_000
        self.worker_keys_most = self.now.worker_shard_entries_max
