"""Any worker, by chance: what no policy at all does."""

from simulator.request import Request
from simulator.rivals.indifferent import Indifferent
from simulator.router import Rival, Site
from simulator.streams import random_stream


class RandomChoice(Indifferent):
    """Every worker of the world is as likely as every other."""

    name = "random"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._streams = [
            random_stream(site.seed, f"random choice {region}") for region in range(site.fleet.regions)
        ]
        """One a region: no edge's luck depends on another's."""

    def arrive(self, request: Request) -> None:
        """Draws a worker."""
        self._site.dispatch(request, self._streams[self._site.here].randrange(self._site.fleet.workers))

    def refused(self, request: Request, worker: int) -> None:
        """Draws again."""
        self.arrive(request)


RANDOM = Rival("random", RandomChoice, "no policy")
