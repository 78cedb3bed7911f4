"""What is read from the edge's state at the moment of a scrape: no copies that could disagree with it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.resubscribe import ResubscribeReason
from services.edge.readiness import Readiness

_PREFIX = "kvcompass_edge_"


class EdgeGauges(Collector):
    """`kvcompass_edge_*` of the state: views by shard, workers by id, what the role counts."""

    def __init__(
        self,
        role: EdgeRole,
        followers: tuple[IndexFollower, ...],
        readiness: Readiness,
        in_progress: Callable[[], int],
        now_us: Callable[[], int],
    ) -> None:
        self._role = role
        self._followers = followers
        self._readiness = readiness
        self._in_progress = in_progress
        self._now_us = now_us

    def describe(self) -> Iterator[Metric]:
        """Names without values: registering must not read the state."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Everything, now."""
        yield GaugeMetricFamily(
            _PREFIX + "ready", "1 when balancers may send requests.", float(self._readiness.ready)
        )
        yield GaugeMetricFamily(
            _PREFIX + "requests_in_progress", "On the public listener.", self._in_progress()
        )
        yield from self._counts()
        yield from self._views()
        yield from self._fleet()

    def _counts(self) -> Iterator[Metric]:
        role, fleet = self._role, self._role.fleet
        yield CounterMetricFamily(
            _PREFIX + "blind_decisions",
            "Decisions taken while a shard's view was not exact.",
            role.blind_decisions,
        )
        yield _counter(
            "wrong_claims", "Engine reused less than claimed.", "worker", fleet.index_of, role.wrong_claims
        )
        yield _counter(
            "wrong_predictions",
            "Engine without events reused less than it was taken to hold (APPROXIMATE).",
            "worker",
            fleet.predicted.values(),
            role.wrong_predictions,
        )
        yield _counter(
            "cross_region_hits",
            "Answers that reused at least a claim no worker of the own region could match.",
            "worker_region",
            (region for region in fleet.plan.regions if region != role.region),
            role.cross_region_hits,
        )

    def _views(self) -> Iterator[Metric]:
        now = self._now_us()
        state = GaugeMetricFamily(
            _PREFIX + "view_state", "1 for the state each shard's view is in.", labels=("shard", "state")
        )
        age = GaugeMetricFamily(
            _PREFIX + "view_age_seconds",
            "Since the unit last confirmed or changed the view.",
            labels=("shard",),
        )
        snapshots = CounterMetricFamily(_PREFIX + "view_snapshots", "Snapshots loaded.", labels=("shard",))
        size = GaugeMetricFamily(
            _PREFIX + "view_snapshot_bytes", "Of the newest snapshot loaded.", labels=("shard",)
        )
        took = GaugeMetricFamily(
            _PREFIX + "view_snapshot_seconds",
            "From the first chunk of the newest snapshot until the view was replaced.",
            labels=("shard",),
        )
        groups = CounterMetricFamily(_PREFIX + "view_patch_groups", "Groups applied.", labels=("shard",))
        old = CounterMetricFamily(
            _PREFIX + "view_old_groups", "Refused by the sequence guard.", labels=("shard",)
        )
        mismatches = CounterMetricFamily(
            _PREFIX + "view_digest_mismatches", "A view differed from its table.", labels=("shard",)
        )
        resubscriptions = CounterMetricFamily(
            _PREFIX + "view_resubscriptions", "Streams given up, by reason.", labels=("shard", "reason")
        )
        for follower in self._followers:
            shard = str(follower.shard)
            current = follower.state(now)
            for each in FollowerState:
                state.add_metric((shard, each.value), float(each is current))
            age_us = follower.age_us(now)
            if age_us is not None:
                age.add_metric((shard,), age_us / 1e6)
            if follower.last_snapshot is not None:
                size.add_metric((shard,), follower.last_snapshot.size)
                took.add_metric((shard,), follower.last_snapshot.took_us / 1e6)
            counters = follower.counters
            snapshots.add_metric((shard,), counters.snapshots)
            groups.add_metric((shard,), counters.groups)
            old.add_metric((shard,), counters.old_groups)
            mismatches.add_metric((shard,), counters.digest_mismatches)
            for reason in ResubscribeReason:
                resubscriptions.add_metric((shard, reason.value), counters.resubscriptions[reason])
        yield from (state, age, snapshots, size, took, groups, old, mismatches, resubscriptions)

    def _fleet(self) -> Iterator[Metric]:
        now = self._now_us()
        fleet = self._role.fleet
        fleet.refresh(now)
        labels = ("worker", "worker_region")
        queue = GaugeMetricFamily(_PREFIX + "worker_queue_ms", "Estimated queueing delay.", labels=labels)
        age = GaugeMetricFamily(_PREFIX + "worker_load_age_ms", "Of the last load report.", labels=labels)
        belief = GaugeMetricFamily(
            _PREFIX + "worker_belief", "Share of claims that is reused.", labels=labels
        )
        flights = GaugeMetricFamily(_PREFIX + "worker_in_flight_requests", "Of this edge.", labels=labels)
        standing = GaugeMetricFamily(
            _PREFIX + "worker_standing", "0 known, 1 unknown, 2 suspected, 3 out.", labels=labels
        )
        predicted = GaugeMetricFamily(
            _PREFIX + "worker_predicted_keys",
            "Prefixes that a worker without events is taken to hold (APPROXIMATE).",
            labels=labels,
        )
        for worker, i in fleet.index_of.items():
            region = fleet.region_names[i]
            queue.add_metric((worker, region), float(fleet.queue_ms[i]))
            age_ms = fleet.age_ms(i, now)
            if age_ms is not None:
                age.add_metric((worker, region), age_ms)
            belief.add_metric((worker, region), float(fleet.beliefs.values[i]))
            flights.add_metric((worker, region), float(fleet.in_flight.requests[i]))
            standing.add_metric((worker, region), float(fleet.standing[i]))
            if i in fleet.predicted:
                predicted.add_metric((worker, region), self._role.expected.predicted_keys(i))
        yield from (queue, age, belief, flights, standing, predicted)


def _counter(
    name: str, what: str, label: str, foreseen: Iterable[str], counts: Counter[str]
) -> CounterMetricFamily:
    """A counter by one label, with a series from 0 for each value that the plan lets foresee."""
    family = CounterMetricFamily(_PREFIX + name, what, labels=(label,))
    for value in dict.fromkeys((*foreseen, *counts)):
        family.add_metric((value,), counts[value])
    return family
