"""Any worker, by chance: what no policy at all does."""

from collections.abc import Sequence

from kvcompass.engine_events import EngineEvent
from simulator.request import Request
from simulator.router import Rival, Site
from simulator.streams import random_stream


class RandomChoice:
    """Every worker of the world is as likely as every other."""

    name = "random"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stream = random_stream(site.seed, "random choice")

    def arrive(self, request: Request) -> None:
        """Draws a worker."""
        self._site.dispatch(request, self._stream.randrange(self._site.fleet.workers))

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """Of no interest."""

    def first_token(self, request: Request, worker: int) -> None:
        """Of no interest."""

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Of no interest."""

    def refused(self, request: Request, worker: int) -> None:
        """Draws again."""
        self.arrive(request)


RANDOM = Rival("random", RandomChoice, "no policy")
