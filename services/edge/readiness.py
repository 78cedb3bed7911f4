"""Whether this edge may be sent requests, and why not."""

from collections.abc import Callable, Sequence
from typing import Any

from kvcompass.roles.index_follower import FollowerState, IndexFollower
from services.runtime.ops import Health


class Readiness:
    """Ready once kernels are compiled and every shard was loaded; not any more once it drains.

    A shard that grows stale later, or is forgotten because the plan gives a place again, does not make it
    unready: it answers on, and counts its decisions blind.
    """

    def __init__(self, followers: Sequence[IndexFollower], now_us: Callable[[], int]) -> None:
        self._followers = followers
        self._now_us = now_us
        self.warm = False
        """Kernels are compiled."""
        self.draining = False
        self.left = False
        """The plan has this edge no more."""

    @property
    def can_route(self) -> bool:
        """A request can be decided on, though perhaps blindly."""
        return self.warm

    @property
    def ready(self) -> bool:
        """Balancers may send requests."""
        return not self.reasons()

    @property
    def blind(self) -> bool:
        """Some shard cannot be read in full or in time."""
        now = self._now_us()
        return any(follower.state(now).is_blind for follower in self._followers)

    def reasons(self) -> list[str]:
        """Why it is not ready; empty when it is, degraded or not."""
        reasons = []
        if self.draining:
            reasons.append("draining")
        if self.left:
            reasons.append("this edge has left the plan: end it")
        if not self.warm:
            reasons.append("kernels are being compiled")
        now = self._now_us()
        for follower in self._followers:
            if follower.state(now) is FollowerState.ABSENT and not follower.was_loaded:
                refusal = follower.refusal
                why = f": refused, {refusal.field}: {refusal.message}" if refusal else ""
                reasons.append(f"shard {follower.shard} is not loaded{why}")
        return reasons

    def not_exact(self) -> dict[str, str]:
        """State of every shard whose view is not known to be equal to its unit's table."""
        now = self._now_us()
        states = {str(follower.shard): follower.state(now) for follower in self._followers}
        return {shard: state.value for shard, state in states.items() if state is not FollowerState.EXACT}

    def shards(self) -> list[dict[str, Any]]:
        """Every shard's view, for operators."""
        now = self._now_us()
        return [
            {
                "shard": follower.shard,
                "state": follower.state(now).value,
                "age_ms": None if (age := follower.age_us(now)) is None else age / 1_000,
                "unit_epoch": follower.unit_epoch,
                "applied_sequence": follower.applied_sequence,
                "digest": f"{follower.digest:016x}",
                "snapshots": follower.counters.snapshots,
                "last_snapshot": None
                if (last := follower.last_snapshot) is None
                else {"bytes": last.size, "ms": last.took_us / 1_000},
                "groups": follower.counters.groups,
                "old_groups": follower.counters.old_groups,
                "digest_mismatches": follower.counters.digest_mismatches,
                "resubscriptions": {
                    reason.value: count for reason, count in follower.counters.resubscriptions.items()
                },
            }
            for follower in self._followers
        ]

    def public(self) -> dict[str, Any]:
        """What anybody may know."""
        health = self.health()
        return {"ready": health.ready, "state": health.state, "reasons": health.reasons}

    def health(self) -> Health:
        """What operators may know."""
        reasons = self.reasons()
        ready, state = not reasons, "draining" if self.draining else "starting"
        if ready:
            reasons = [f"shard {shard} is {view}" for shard, view in self.not_exact().items()]
            state = "degraded" if reasons else "ready"
        return Health(ready, state, reasons, {"shards": self.shards()})
