"""Round trips between regions, measured where they matter: from one edge's container to another's port."""

import itertools
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.plan.model import Plan
from lab.compose_test.engine import Compose
from lab.netem.tolerance import allowed_error_ms

_CONNECTS = 15

_PROBE = """
import json, socket, sys, time
took = []
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).close()
    took.append(1e3 * (time.perf_counter() - began))
    time.sleep(0.02)
print(json.dumps(took))
"""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Median of TCP connects, which take one round trip, against what the plan says."""

    planned_ms: float
    measured_ms: float

    @property
    def error_ms(self) -> float:
        """Signed; more than planned is positive."""
        return round(self.measured_ms - self.planned_ms, 2)

    @property
    def within_tolerance(self) -> bool:
        """As `lab.netem.tolerance` has it."""
        return abs(self.error_ms) <= allowed_error_ms(self.planned_ms)


def measure_round_trips(compose: Compose, plan: Plan) -> Mapping[str, RoundTrip]:
    """`us-eu` -> round trip, for every ordered pair of regions. About 4 s a pair."""
    edges = {edge.region: edge for edge in plan.edges}
    trips = {}
    for origin, destination in itertools.permutations(plan.regions, 2):
        host, port = edges[destination].peer_address.rsplit(":", 1)
        probe = ("python", "-", host, port, str(_CONNECTS))
        took = json.loads(compose.execute(edges[origin].id, *probe, stdin=_PROBE))
        i, j = plan.regions.index(origin), plan.regions.index(destination)
        planned_ms = plan.wan_ms[i][j] + plan.wan_ms[j][i]
        trips[f"{origin}-{destination}"] = RoundTrip(planned_ms, round(statistics.median(took), 2))
    return trips
