"""What lies between regions: one `Link` a direction, with its faults, on the virtual clock."""

import random
from collections.abc import Callable
from typing import Any, Final

from kvcompass.wan import Link
from simulator.clock import Action, Clock, Priority
from simulator.errors import SimulationError
from simulator.streams import random_stream

RETRANSMIT_US: Final = 200_000
"""Least time after which TCP sends a lost segment again (Linux's TCP_RTO_MIN), besides a round trip."""

_GIVEN_UP_US: Final = 60_000_000
"""Linux gives a connection up later, but callers do not wait."""

_MESSAGE: Final = Priority.MESSAGE

LinkOf = Callable[[int, int], Link]
"""The link from one region to another, by their indices."""


class Network:
    """Carries messages. What one region sends another arrives in order.

    A link that reorders lets messages that are not sent reliably arrive before others.
    """

    def __init__(
        self,
        clock: Clock,
        regions: int,
        link_of: LinkOf,
        seed: int,
        *,
        given_up_us: int = _GIVEN_UP_US,
    ) -> None:
        """`given_up_us`: a connection whose message gets through no sooner is broken."""
        self._clock = clock
        self._links = [[link_of(a, b) for b in range(regions)] for a in range(regions)]
        self._streams = [
            [random_stream(seed, f"network {a} {b}") for b in range(regions)] for a in range(regions)
        ]
        self._given_up_us = given_up_us
        self._least_us = _least(self._links)
        self._steady_us = [[_steady_us(link) for link in row] for row in self._links]
        self._relied_on: set[tuple[int, int]] = set()
        """Links of which somebody knows that they are steady."""
        self._last_us = [[0] * regions for _ in range(regions)]
        self.bytes_sent = [[0] * regions for _ in range(regions)]
        """Between each two regions, as far as senders have said."""

    def one_way_us(self, source: int, target: int) -> int:
        """Time on an idle link without jitter: nothing can be known sooner, except by jitter."""
        return round(1000.0 * self._links[source][target].one_way_ms)

    def least_us(self, source: int, target: int) -> int:
        """Least time until what is true in `source` can be known in `target`, by any way."""
        return self._least_us[source][target]

    def set_link(self, source: int, target: int, link: Link) -> None:
        """Change a link from now on; what is under way arrives as it was sent.

        Raises:
            SimulationError: Somebody relies on the link as it is.
        """
        if (source, target) in self._relied_on:
            raise SimulationError("links change in faithful runs only; make one", field="link")
        self._links[source][target] = link
        self._least_us = _least(self._links)
        # Not even a link without faults is steady then: what is under way must not be overtaken.
        steady_us = self._steady_us[source][target]
        if steady_us is not None:
            self._last_us[source][target] = self._clock.now_us + steady_us
            self._steady_us[source][target] = None

    def steady_us(self, source: int, target: int) -> int | None:
        """Time that every message takes, whatever it is; None where it differs or one may be lost.

        It stands for the whole run: whoever has asked may rely on it.
        """
        steady_us = self._steady_us[source][target]
        if steady_us is not None:
            self._relied_on.add((source, target))
        return steady_us

    def count(self, source: int, target: int, size: int) -> None:
        """Count messages that nobody waits for, or whose receiver fetches them by `steady_us`."""
        self.bytes_sent[source][target] += size

    def send(self, source: int, target: int, size: int, action: Action, *args: Any) -> None:
        """Deliver a message once, twice or never, as the link has it: `action(*args)`. `size` in bytes."""
        link = self._links[source][target]
        stream = self._streams[source][target]
        self.bytes_sent[source][target] += size
        if link.partition or (link.loss and stream.random() < link.loss):
            return
        copies = 2 if link.duplicate and stream.random() < link.duplicate else 1
        for _ in range(copies):
            at_us = self._arrival_us(link, stream, size)
            if link.reorder and stream.random() < link.reorder:
                self._clock.at(self._clock.now_us, _MESSAGE, action, *args)
            else:
                self._in_order(source, target, at_us, action, args)

    def send_reliably(self, source: int, target: int, size: int, action: Action, *args: Any) -> bool:
        """Deliver a message once, in order, later for each time it is lost; False if regions are parted."""
        self.bytes_sent[source][target] += size
        steady_us = self._steady_us[source][target]
        if steady_us is not None:
            self._clock.at(self._clock.now_us + steady_us, _MESSAGE, action, *args)
            return True
        link = self._links[source][target]
        stream = self._streams[source][target]
        if link.partition:
            return False
        waited_us = 0
        if link.loss:
            timeout_us = RETRANSMIT_US + 2 * self.one_way_us(source, target)
            while stream.random() < link.loss:
                waited_us += timeout_us
                timeout_us *= 2
                if waited_us > self._given_up_us:
                    return False
        at_us = waited_us + self._arrival_us(link, stream, size)
        self._in_order(source, target, at_us, action, args)
        return True

    def _arrival_us(self, link: Link, stream: random.Random, size: int) -> int:
        """When a message that is sent now is there."""
        travel_ms = link.one_way_ms
        if link.jitter_ms:
            travel_ms = max(0.0, stream.gauss(travel_ms, link.jitter_ms))
        if link.rate is not None:
            travel_ms += size * 8e-3 / link.rate
        return self._clock.now_us + round(1000.0 * travel_ms)

    def _in_order(self, source: int, target: int, at_us: int, action: Action, args: tuple[Any, ...]) -> None:
        """Deliver a message, not before any that was sent before."""
        at_us = max(at_us, self._last_us[source][target])
        self._last_us[source][target] = at_us
        self._clock.at(at_us, _MESSAGE, action, *args)


def _least(links: list[list[Link]]) -> list[list[int]]:
    """Shortest ways between all regions, each link at its best (Floyd and Warshall)."""
    places = range(len(links))
    least = [[0 if a == b else _best_us(links[a][b]) for b in places] for a in places]
    for via in places:
        for a in places:
            for b in places:
                least[a][b] = min(least[a][b], least[a][via] + least[via][b])
    return least


def _steady_us(link: Link) -> int | None:
    """Time that every message takes on a link that does nothing but delay."""
    return round(1000.0 * link.one_way_ms) if link == Link(link.one_way_ms) else None


def _best_us(link: Link) -> int:
    if link.reorder or link.jitter_ms:
        return 0
    return round(1000.0 * link.one_way_ms)
