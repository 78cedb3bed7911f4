"""Names of a router's metrics and the values of their labels; the dashboard shares them.

`origin` and `destination` are regions. A router reports the directions that leave its region; of
`PARTITIONED` and `DROPPED_PACKETS` also those that arrive, for it can cut them too: take the maximum, or the
sum, over routers.
"""

from typing import Final

ONE_WAY_MS: Final = "kvcompass_wan_one_way_ms"
"""Gauge {origin,destination}: the delay that is asked for, ms."""
RTT_MS: Final = "kvcompass_wan_rtt_ms"
"""Gauge {origin,destination}: measured between the two routers, median of the last echoes, ms; absent while
none is answered."""
PARTITIONED: Final = "kvcompass_wan_partitioned"
"""Gauge {origin,destination}: 1 while the direction is cut at this router."""
PACKETS: Final = "kvcompass_wan_packets_total"
"""Counter {origin,destination}: packets that passed or were lost by `loss`; cut ones are not among them."""
DROPPED_PACKETS: Final = "kvcompass_wan_dropped_packets_total"
"""Counter {origin,destination,reason}: packets lost. `shaped`: by `loss`, or because a queue was full;
`partition`: the direction was cut."""
SHAPER_INFO: Final = "kvcompass_wan_shaper_info"
"""Gauge {shaper,profile}: always 1; `shaper` is one of `SHAPERS`."""

SHAPERS: Final = ("tc", "nfqueue")
