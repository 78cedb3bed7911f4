"""Who feeds each shard of the view, and what is passed on to other edges: metrics, and lines of the state."""

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.upstream_choice import SourceKind, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay

_PREFIX = "kvcompass_edge_"
_COUNTERS = {
    "relay_payload_bytes": "Of patches and snapshots sent to other edges of the region.",
    "relay_snapshots": "Snapshots begun for other edges of the region.",
    "relay_overflows": "Edges that fell off the log and were sent a snapshot.",
    "relay_stalled": "Streams ended since an edge took no message for 10 s.",
    "relay_superseded_subscribers": "Open streams of an edge whose place a newer one of it took.",
    "relay_unavailable": "Streams of other edges refused or ended, since the shard could not be served.",
    "relay_refusals": "Handshakes of other edges refused.",
}
"""Metric, which is a counter of the relay less its first word -> what it counts."""


def fed_by(relay: ViewRelay, choice: UpstreamChoice) -> dict[str, Any]:
    """What the state says of a shard beside its view."""
    return {
        "source": choice.source.kind.value,
        "fed_by": choice.source.id,
        "fallbacks": {reason.value: count for reason, count in choice.fallbacks.items()},
        "relay_subscribers": relay.subscribers,
    }


class RelayGauges(Collector):
    """`kvcompass_edge_view_source`, `..._view_fallbacks_total` and `kvcompass_edge_relay_*`, by shard."""

    def __init__(self, relays: Sequence[ViewRelay], choices: Sequence[UpstreamChoice]) -> None:
        """One of each a shard, in order."""
        self._shards = [
            (str(shard), relay, choice)
            for shard, (relay, choice) in enumerate(zip(relays, choices, strict=True))
        ]

    def describe(self) -> Iterator[Metric]:
        """Names without values: registering must not read the state."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Everything, now."""
        source = GaugeMetricFamily(
            _PREFIX + "view_source", "1 for who feeds each shard's view.", labels=("shard", "source")
        )
        fallbacks = CounterMetricFamily(
            _PREFIX + "view_fallbacks", "Edges left for the unit, by why.", labels=("shard", "reason")
        )
        subscribers = GaugeMetricFamily(
            _PREFIX + "relay_subscribers", "Edges that follow this one.", labels=("shard",)
        )
        for shard, relay, choice in self._shards:
            for kind in SourceKind:
                source.add_metric((shard, kind.value), float(choice.source.kind is kind))
            for reason in ResubscribeReason:
                if reason is not ResubscribeReason.MOVED:
                    fallbacks.add_metric((shard, reason.value), choice.fallbacks[reason])
            subscribers.add_metric((shard,), relay.subscribers)
        yield from (source, fallbacks, subscribers)
        for name, what in _COUNTERS.items():
            family = CounterMetricFamily(_PREFIX + name, what, labels=("shard",))
            for shard, relay, _ in self._shards:
                family.add_metric((shard,), getattr(relay.counters, name.removeprefix("relay_")))
            yield family
