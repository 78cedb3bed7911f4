"""The ways between regions, as the routers of the lab measure them and as requests take them."""

from lab.dashboards import signals
from lab.dashboards.panels import Colour, Panel, Query, Row, Shape, Unit, Words, steps
from lab.dashboards.promql import Expressions, Scope, share
from lab.netem import names, tolerance

_PAIR = ("origin", "destination")
_WAY = "{{origin}} to {{destination}}"


def wan(metrics: Expressions) -> Row:
    """Round trips, partitions, crossings, drops."""
    peer = "kvcompass_edge_peer_requests_total"
    measured, planned = metrics.max(names.RTT_MS, *_PAIR), _planned_rtt(metrics)
    return Row(
        600,
        "WAN",
        (
            Panel(
                id=601,
                title="Round trip, measured and planned",
                description="What routers measure once a second, and both ways of the profile. They part: "
                "the emulation does not hold, or a host is out of CPU.",
                unit=Unit.MILLISECONDS,
                queries=(Query(measured, f"{_WAY} measured"), Query(planned, f"{_WAY} planned")),
            ),
            Panel(
                id=602,
                title="Error of the round trip",
                description="How far measured and planned part, as a share of what may be: 3 ms or 5 %, "
                "whichever is more. Above 100 % for long: latencies of this lab prove nothing.",
                unit=Unit.SHARE,
                queries=(Query(f"abs({measured} - {planned}) / {_allowed(planned)}", _WAY),),
                steps=steps(watch=0.5, act=1),
            ),
            Panel(
                id=603,
                title="Partitions",
                description="Ways that are cut on purpose. While one is, edges give up streams and choose "
                "workers on their side; it ends when whoever made it heals it.",
                unit=Unit.STATE,
                queries=(Query(metrics.max(names.PARTITIONED, *_PAIR), _WAY),),
                shape=Shape.STATES,
                words={0: Words("open", Colour.GOOD), 1: Words("cut", Colour.ACT)},
            ),
            Panel(
                id=604,
                title="Requests that crossed",
                description="Requests of other regions' edges that a region's edges ended, a second. Nothing "
                "from a region whose cross-region share is not 0: its requests do not arrive.",
                unit=Unit.REQUESTS_A_SECOND,
                queries=(Query(metrics.rate(peer, "origin", "region"), "{{origin}} to {{region}}"),),
                width=6,
            ),
            Panel(
                id=605,
                title="Failed crossings",
                description="Of those, the part that failed. no_worker on the rise: what the origin believes "
                "of the workers here is old; see the age of loads in row Workers.",
                unit=Unit.SHARE,
                queries=(
                    Query(
                        share(
                            metrics.rate(peer, "origin", "region", outcome=signals.FAILURES),
                            metrics.rate(peer, "origin", "region"),
                        ),
                        "{{origin}} to {{region}}",
                    ),
                ),
                width=6,
                largest=1,
                steps=steps(watch=signals.ERROR_SHARE_WATCH, act=signals.ERROR_SHARE_ACT),
            ),
            Panel(
                id=606,
                title="Lost packets",
                description="Packets that a router lost, of those it did not cut: the profile's loss. More "
                "than the profile says: a queue is full.",
                unit=Unit.SHARE,
                queries=(
                    Query(
                        share(
                            metrics.rate(names.DROPPED_PACKETS, *_PAIR, reason="shaped"),
                            metrics.rate(names.PACKETS, *_PAIR),
                        ),
                        _WAY,
                    ),
                ),
                width=6,
                largest=1,
            ),
            Panel(
                id=607,
                title="Packets",
                description="Packets between regions, a second, and those that a partition cut. Index and "
                "load exchange never rest: nothing at all on an open way is a router that does not see it.",
                unit=Unit.PACKETS_A_SECOND,
                queries=(
                    Query(metrics.rate(names.PACKETS, *_PAIR), _WAY),
                    Query(metrics.rate(names.DROPPED_PACKETS, *_PAIR, reason="partition"), f"{_WAY} cut"),
                ),
                width=6,
            ),
        ),
    )


def _allowed(planned: str) -> str:
    return f"clamp_min({tolerance.SHARE:g} * {planned}, {tolerance.LEAST_MS:g})"


def _planned_rtt(metrics: Expressions) -> str:
    """There and back: the way there plus the same series with its ends exchanged.

    The way back is told by the router of the other region, whether that region is chosen or not.
    """
    there = metrics.max(names.ONE_WAY_MS, *_PAIR)
    everywhere = Expressions(Scope((), metrics.scope.window))
    back = f'label_replace({everywhere.max(names.ONE_WAY_MS, *_PAIR)}, "end", "$1", "origin", "(.*)")'
    back = f'label_replace({back}, "origin", "$1", "destination", "(.*)")'
    back = f'label_replace({back}, "destination", "$1", "end", "(.*)")'
    return f"({there} + on (origin, destination) {back})"
