"""What the roles counted in a run, for the summary."""

from collections import Counter

from kvcompass.roles.upstream_choice import SourceKind
from simulator.convergence.fleet import Fleet


def counted(fleet: Fleet) -> Counter[str]:
    """Of the processes that run at the end; what earlier incarnations counted died with them."""
    counts: Counter[str] = Counter()
    for node in fleet.units:
        unit = node.unit.counters
        counts["holes in reports"] += unit.holes
        counts["reports asked for"] += unit.report_requests
        counts["full reports"] += unit.full_reports
        counts["holdings that differed"] += unit.digest_mismatches
        counts["leases ended"] += unit.leases_ended
        counts["snapshots"] += unit.snapshots
        counts["subscribers fallen off the log"] += unit.overflows
        counts["tables doubled"] += unit.growths
        counts["tables rebuilt"] += unit.rebuilds
    for edge in fleet.edges:
        for feed in edge.feeds:
            follower = feed.follower.counters
            for reason, times in follower.resubscriptions.items():
                counts[f"resubscribed: {reason}"] += times
            counts["old groups refused"] += follower.old_groups
            counts["views that differed"] += follower.digest_mismatches
            relay = feed.relay.counters
            counts["snapshots from edges"] += relay.snapshots
            counts["edges that could not serve"] += relay.unavailable
            counts["edges left"] += feed.choice.fallbacks.total()
            counts["shards fed by edges at the end"] += feed.choice.source.kind is SourceKind.EDGE
    for worker in fleet.workers:
        if worker.followed is not None:
            counts["holes in events"] += worker.followed.agent.holes
            counts["engine restarts seen"] += worker.followed.agent.engine_restarts
    counts["messages to nobody"] += fleet.fabric.unreached
    counts.update(fleet.births.counts)
    return +counts
