"""How long after the last fault every view is true again, at most: derived in docs/convergence.md."""

from collections import Counter
from typing import Final

from kvcompass.roles.backoff import LONGEST_PAUSE_US, REFUSED_US
from kvcompass.roles.index_follower import STALE_AFTER_US
from kvcompass.roles.upstream_choice import RETURN_AFTER_US
from kvcompass.roles.upstream_probe import LOOK_US
from simulator.convergence.shape import JITTER, Shape
from simulator.product.periods import (
    ANSWER_US,
    EVENT_TIMEOUT_US,
    FLUSH_US,
    KEEPALIVE_US,
    LOAD_JITTER,
    LOAD_PERIOD_US,
    LOAD_TIMEOUT_US,
    QUIET_US,
    TICK_US,
)

FORMULA: Final = (
    "late + max(engine + trip + report, stream + trip + report, lease, settle, silence)"
    " + pause + trip + watermark + flush + return"
)


def bound_terms(shape: Shape) -> dict[str, int]:
    """The formula's terms, us, from the settings of a fleet."""
    lease_us = 1_000 * max(plan.routing.lease_ms for plan in (shape.plan, shape.last_plan))
    ways_ms = [way for row in shape.plan.wan_ms for way in row]
    trip_us = round(2_000 * max(ways_ms) * (1 + 6 * JITTER))
    watermark_us = shape.bounds.watermark_period_us
    pause_us = LONGEST_PAUSE_US if shape.next_plan is None else REFUSED_US
    unheard_us = ANSWER_US if shape.lossy else KEEPALIVE_US
    following = max(Counter(edge.region for edge in shape.plan.edges).values()) - 1
    again_us = LONGEST_PAUSE_US + trip_us + watermark_us
    return_us = RETURN_AFTER_US + LOOK_US + trip_us + watermark_us + max(0, following - 1) * again_us
    return {
        "late": trip_us if shape.lossy else KEEPALIVE_US + trip_us,
        "engine": LOAD_TIMEOUT_US
        + round((1 + LOAD_JITTER) * LOAD_PERIOD_US)
        + max(EVENT_TIMEOUT_US + LONGEST_PAUSE_US, QUIET_US),
        "stream": unheard_us + pause_us,
        "report": trip_us,
        "lease": lease_us + lease_us // 6 + TICK_US,
        "settle": shape.bounds.settle_leases * lease_us + TICK_US,
        "silence": STALE_AFTER_US,
        "pause": LONGEST_PAUSE_US,
        "trip": trip_us,
        "watermark": watermark_us,
        "flush": FLUSH_US + TICK_US,
        "return": return_us if shape.upstream == "edge" else 0,
    }


def bound_us(shape: Shape) -> int:
    """From the end of the last fault, and of the last change of a cache, until all is true again."""
    term = bound_terms(shape)
    known_us = max(
        term["engine"] + term["trip"] + term["report"],
        term["stream"] + term["trip"] + term["report"],
        term["lease"],
        term["settle"],
        term["silence"],
    )
    after = ("pause", "trip", "watermark", "flush", "return")
    return term["late"] + known_us + sum(term[name] for name in after)
