"""An edge on the clock: its role, its view, the requests it serves and those it carries."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.load import RegionLoad
from kvcompass.index import IndexView
from kvcompass.keys import prefix_keys
from kvcompass.roles.attempts import Attempt
from kvcompass.roles.courses import Courses
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.messages import AgentLoad
from simulator.product import sizes
from simulator.product.index_feed import IndexFeed
from simulator.product.journey import Journey
from simulator.product.passage import Carried
from simulator.request import Request
from simulator.router import Site

_LEAST_TICK_US: Final = 1_000
"""`services.edge.fleet.load_broadcaster`: no two broadcasts are closer than this."""


class EdgeNode:
    """Owns an edge's role and view. Everything here runs in its region."""

    def __init__(
        self,
        site: Site,
        role: EdgeRole,
        courses: Courses,
        view: IndexView,
        feeds: Sequence[IndexFeed],
        journeys: dict[int, Journey],
        *,
        region: int,
        namespace: bytes,
        rungs: NDArray[np.int32],
        sharing_group: str,
    ) -> None:
        """`feeds` by shard. `journeys`: the fleet's requests under way, by id.

        `namespace` is the sharing group's, `rungs` are the query plan's.
        """
        self.site: Final = site
        self.role: Final = role
        self.courses: Final = courses
        self.view: Final = view
        self.feeds: Final = feeds
        self.region: Final = region
        self.peers: Mapping[str, EdgeNode] = {}
        """All edges of the fleet by id, this one too; set when all are made."""
        self.journeys: Final = journeys
        self._namespace = namespace
        self._rungs = rungs
        self._group = sharing_group

    def start(self) -> None:
        """Load the view and tell every other region of this one's load, at once."""
        for feed in self.feeds:
            feed.start()
        now_us = self.site.now_us
        for edge_id in self.role.broadcasts_due(now_us):
            self.peers[edge_id].on_region_load(self.role.region_load(now_us))
        self._next_broadcast()

    # --- requests of this region's clients --------------------------------------------------------

    def arrive(self, request: Request) -> None:
        """A client asks."""
        # An engine reuses at most all tokens but the last.
        keys = prefix_keys(self._namespace, request.prompt[:-1], self._rungs)
        now_us = self.site.now_us
        self.catch_up(now_us)
        blind = any(feed.follower.state(now_us).is_blind for feed in self.feeds)
        course = self.courses.begin(len(request.prompt), keys, self._group, blind=blind)
        self.journeys[request.id] = journey = Journey(self, request, course)
        journey.go_on()

    def catch_up(self, now_us: int) -> None:
        """See that the view has all that has arrived."""
        for feed in self.feeds:
            feed.catch_up(now_us)

    # --- requests of other regions ----------------------------------------------------------------

    def carry(self, request: Request, attempt: Attempt, origin: "EdgeNode") -> None:
        """A peer's request comes, for a worker of this region."""
        Carried(self, request, attempt, origin).go_on()

    # --- load -------------------------------------------------------------------------------------

    def on_worker_load(self, message: AgentLoad) -> None:
        """An agent of this region reports."""
        self.role.on_worker_load(message, self.site.now_us)

    def on_region_load(self, load: RegionLoad) -> None:
        """An edge of another region broadcasts, or its vector comes with an answer."""
        self.role.on_region_load(load, self.site.now_us)

    def _broadcast(self) -> None:
        now_us = self.site.now_us
        due = self.role.broadcasts_due(now_us)
        if due:
            load = self.role.region_load(now_us)
            size = sizes.region_load(load)
            for edge_id in due:
                peer = self.peers[edge_id]
                self.site.send_reliably(peer.region, peer.on_region_load, size, (load,))
        self._next_broadcast()

    def _next_broadcast(self) -> None:
        due_us = self.role.broadcasts.next_us
        if due_us is not None:
            self.site.after(max(_LEAST_TICK_US, due_us - self.site.now_us), self._broadcast)
