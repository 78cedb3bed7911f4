"""SkyWalker: a load balancer in every region, which pushes to a replica only while nothing waits there.

Follows Xia et al., "SkyWalker: A locality-aware cross-region load balancer for LLM inference" (EuroSys 2026),
and its code in SkyPilot (`sky/serve/load_balancer.py`, `load_balancing_policies.py`), with its parameters:

- Selective pushing: every 100 ms a balancer asks its region's engines how much waits; only those where
  nothing does are available until it asks again. Requests wait in the balancer, in order of arrival. Its code
  handles one of them every 10 ms, so that few reach a replica before it is asked again; on a whole continent
  that would be 100 requests a second, so here each replica takes up to four instead: of 1, 2, 4 and any
  number two serve it best where prompts are long, but allow no more than 20 requests a second and replica,
  which workloads of short prompts reach.
- First layer: among available replicas the longest prefix match of a tree of what was pushed, if it covers
  more than half of the prompt, else the least loaded.
- Second layer, when no replica is available: another region's balancer, by the same rule over a tree of what
  went to which region, if its queue, last told 100 ms ago or less and a way late, is no longer than the own
  one and than 10, and it has a replica available. What was pushed there since it told counts into its queue:
  its code, which pushes one request every 10 ms, pushes ten at most in that time. What came from another
  balancer is not pushed on.

At its best while regions are busy at different times and prefixes are used where they were made. At its worst
where loads are unequal but nowhere free: it looks at queues being empty, not at how long they are.
"""

from collections import deque
from typing import Final, NamedTuple

from simulator.request import Request
from simulator.rivals.broadcast import Broadcast, Told
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.holder_masks import workers_of
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.post import Post
from simulator.rivals.routed_prefixes import RoutedPrefixes
from simulator.router import Rival, Site

PROBE_US: Final = 100_000
"""`_IE_QUEUE_PROBE_INTERVAL`, of engines and of balancers."""
CACHE_THRESHOLD: Final = 0.5
"""`PrefixTreeConfig.cache_threshold`."""
PUSHES_A_PROBE: Final = 4
"""To one replica; ours, see above."""
PUSH_QUEUE_MAX: Final = 10
"""`_STEAL_TRIGGER_THRESHOLD`."""
_STATUS_BYTES: Final = 16


class Status(NamedTuple):
    """What a balancer tells the others."""

    queue: int
    available: int


class _Waiting(NamedTuple):
    request: Request
    names: list[int]
    from_balancer: bool


class _Balancer:
    """One region's."""

    def __init__(self, workers: list[int], fleet_workers: int, regions: int, chunk: int) -> None:
        self.workers = workers
        self.queue: deque[_Waiting] = deque()
        self.available = 0
        """Bits of the workers where nothing waited when last asked."""
        self.load = dict.fromkeys(workers, 0)
        """Requests at each when last asked, and those pushed since."""
        self.pushes = dict.fromkeys(workers, 0)
        """Since last asked."""
        self.replicas = RoutedPrefixes(fleet_workers, chunk)
        self.regions = RoutedPrefixes(regions, chunk)
        self.pushed = [0] * regions
        """Own requests in flight by the region they went to."""
        self.went: dict[int, int] = {}
        """The region that each of them went to, by request."""
        self.told: dict[int, Status] = {}
        """With what was pushed there since."""


class SkyWalker(Indifferent):
    """Two layers of the same rule."""

    name = "skywalker"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._post = Post(site)
        self._page_size = page_size_of(fleet)
        own: list[list[int]] = [[] for _ in range(fleet.regions)]
        for worker in range(fleet.workers):
            own[fleet.region_of(worker)].append(worker)
        self._balancers = [
            _Balancer(workers, fleet.workers, fleet.regions, self._page_size) for workers in own
        ]
        for region in range(fleet.regions):
            site.begin(region, self._probe)
        Broadcast(site, self._tell, self._hear, PROBE_US)

    def arrive(self, request: Request) -> None:
        """Joins the queue of its region's balancer."""
        names = chunk_names(request.prompt, self._page_size)
        self._enqueue(_Waiting(request, names, from_balancer=False))

    def refused(self, request: Request, worker: int) -> None:
        """Goes back to the head of the queue; the worker is not available until it is asked again."""
        balancer = self._balancers[self._site.here]
        balancer.available &= ~(1 << worker)
        names = chunk_names(request.prompt, self._page_size)
        balancer.queue.appendleft(_Waiting(request, names, from_balancer=request.region != self._site.here))
        self._push()

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """One request less in the region that it was pushed to."""
        self.lost(request, worker)

    def lost(self, request: Request, worker: int) -> None:
        """The same."""
        balancer = self._balancers[self._site.here]
        balancer.pushed[balancer.went.pop(request.id)] -= 1

    def _enqueue(self, waiting: _Waiting) -> None:
        self._balancers[self._site.here].queue.append(waiting)
        self._push()

    def _probe(self) -> None:
        """Ask the region's engines, push, and again."""
        balancer = self._balancers[self._site.here]
        balancer.available = 0
        for worker in balancer.workers:
            load = self._site.load(worker).value
            balancer.load[worker] = load.running + load.waiting
            balancer.pushes[worker] = 0
            if not load.waiting:
                balancer.available |= 1 << worker
        self._push()
        self._site.after(PROBE_US, self._probe)

    def _tell(self) -> Told[Status]:
        balancer = self._balancers[self._site.here]
        return Status(len(balancer.queue), balancer.available.bit_count()), _STATUS_BYTES

    def _hear(self, source: int, status: Status) -> None:
        self._balancers[self._site.here].told[source] = status
        self._push()

    def _push(self) -> None:
        """Send off the head of the queue for as long as there is somewhere to send it."""
        here = self._site.here
        balancer = self._balancers[here]
        while balancer.queue:
            waiting = balancer.queue[0]
            if balancer.available:
                self._to_replica(balancer, waiting)
            elif waiting.from_balancer or not self._to_region(balancer, waiting):
                return
            balancer.queue.popleft()

    def _to_replica(self, balancer: _Balancer, waiting: _Waiting) -> None:
        request, names, from_balancer = waiting
        here = self._site.here
        matched, holders = balancer.replicas.match(names, balancer.available)
        claimed = 0
        if matched * self._page_size > CACHE_THRESHOLD * len(request.prompt):
            claimed = matched * self._page_size
        else:
            holders = balancer.available
        worker = min(workers_of(holders), key=balancer.load.__getitem__)
        balancer.replicas.insert(names, worker)
        balancer.load[worker] += 1
        balancer.pushes[worker] += 1
        if balancer.pushes[worker] == PUSHES_A_PROBE:
            balancer.available &= ~(1 << worker)
        if not from_balancer:
            self._note(balancer, waiting, here)
        self._site.dispatch(request, worker, claimed)

    def _to_region(self, balancer: _Balancer, waiting: _Waiting) -> bool:
        """Push to another balancer, if one may be pushed to."""
        request, names, _ = waiting
        here = self._site.here
        most = min(PUSH_QUEUE_MAX, len(balancer.queue))
        open_regions = sum(
            1 << region for region, told in balancer.told.items() if told.available and told.queue <= most
        )
        if not open_regions:
            return False
        matched, holders = balancer.regions.match(names, open_regions)
        if matched * self._page_size <= CACHE_THRESHOLD * len(request.prompt):
            holders = open_regions
        ways = self._site.fleet.plan.wan_ms[here]
        region = min(workers_of(holders), key=lambda r: (balancer.pushed[r], ways[r]))
        self._note(balancer, waiting, region)
        told = balancer.told[region]
        balancer.told[region] = told._replace(queue=told.queue + 1)
        passed_on = _Waiting(request, names, from_balancer=True)
        self._post.send(region, self._enqueue, 4 * len(request.prompt), passed_on)
        return True

    def _note(self, balancer: _Balancer, waiting: _Waiting, region: int) -> None:
        balancer.regions.insert(waiting.names, region)
        before = balancer.went.get(waiting.request.id)
        if before is not None:
            balancer.pushed[before] -= 1
        balancer.went[waiting.request.id] = region
        balancer.pushed[region] += 1


SKYWALKER = Rival(
    SkyWalker.name,
    SkyWalker,
    "Xia et al. (EuroSys 2026) and SkyPilot's code: selective pushing, 100 ms, 0.5, 10",
)
