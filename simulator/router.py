"""The seam between the world and whoever decides where requests go: the product and its rivals alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, QueueLoad
from simulator.clock import Action
from simulator.fleet import Fleet
from simulator.place import Place
from simulator.reading import Reading
from simulator.request import Request


class Passage(Protocol):
    """Stands where a request was dispatched, on the way between its edge and its worker: a peer edge.

    The answer comes back that way. Each method is called there as the answer passes, and what is sent to the
    request's edge meanwhile gets there with it.
    """

    def first_token(self, request: Request, worker: int) -> None:
        """The answer begins."""

    def finished(self, request: Request, worker: int) -> None:
        """The answer is complete."""

    def refused(self, request: Request, worker: int) -> None:
        """The engine's queue is full: instead of `Router.refused`."""

    def erred(self, request: Request, worker: int) -> None:
        """The answer is an error that no other worker mends. The request has failed."""

    def lost(self, request: Request, worker: int) -> None:
        """The answer will never come. The request has failed."""


class Site(Place, Protocol):
    """The world, as a router's code meets it. All of that code runs in some region, `here`.

    Nothing reaches another region but by `send`, `send_reliably` and `dispatch`. Actions run where they were
    sent to, timers where they were set. A router may keep all its regions' state in one object, but code that
    runs in a region touches that region's state alone; what engines tell comes as a `Reading`, which refuses
    to be read where it cannot yet be known.
    """

    @property
    def fleet(self) -> Fleet:
        """Regions, workers and latencies. Everybody may know these."""

    @property
    def seed(self) -> int:
        """For `simulator.streams`, with the router's own subsystem names."""

    def send(self, region: int, action: Action, size: int = 0, args: tuple[Any, ...] = ()) -> None:
        """Do `action(*args)` in a region when a message of `size` bytes has got there, if it does."""

    def steady_us(self, source: int, target: int) -> int | None:
        """Time that every message takes from one region to another; None where it differs or one is lost."""

    def load(self, worker: int) -> Reading[QueueLoad]:
        """What the engine of a worker of this region tells of its load now."""

    def dispatch(
        self, request: Request, worker: int, claimed_tokens: int = 0, passage: Passage | None = None
    ) -> None:
        """Send a request from here to a worker, over TCP. `claimed_tokens`: what the router thinks it holds.

        Its answer goes to the edge of the request's own region; by way of `passage`, if there is one here.
        """

    def fail(self, request: Request) -> None:
        """Give a request up: nobody can take it."""

    def engine_now(self, worker: int) -> Engine:
        """Any worker's engine as it is this instant, to look at: for the clairvoyant bound alone."""


class Router(Protocol):
    """One policy for a whole fleet. Every method runs at the place and the time that it names."""

    @property
    def name(self) -> str:
        """As on the command line and in results."""

    def arrive(self, request: Request) -> None:
        """A request is at the edge of its region. Ends, now or later, in `Site.dispatch` or `Site.fail`."""

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """Beside a worker: its engine published a batch of cache events."""

    def first_token(self, request: Request, worker: int) -> None:
        """At the request's edge: the answer begins."""

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """At the request's edge: the answer is complete; the engine reused so many tokens."""

    def refused(self, request: Request, worker: int) -> None:
        """Where it was dispatched from: the engine's queue is full. Ends in `dispatch` or `fail` again."""


@runtime_checkable
class LossAware(Protocol):
    """A router that wants to know of answers that broke off. It need not."""

    def lost(self, request: Request, worker: int) -> None:
        """At the request's edge: its answer will never come. The request has failed."""


@runtime_checkable
class ErrorAware(Protocol):
    """A router that tells an answer that is an error from one that broke off. Others hear `lost` of both."""

    def erred(self, request: Request, worker: int) -> None:
        """At the request's edge: its answer is an error that no other worker mends; it has failed."""


@runtime_checkable
class Checked(Protocol):
    """A router with laws of its own."""

    def broken_laws(self) -> list[str]:
        """What is not as it must be, after a run."""


RouterMaker = Callable[[Site], Router]
"""Called once, before the first request; it has `Site.begin` to set timers."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A router by name, with what it follows."""

    name: str
    make: RouterMaker
    follows: str
    """The work whose parameters and rules it takes, in one line; for reports."""
    is_bound: bool = False
    """It may ask `Site.engine_now`: no policy, but a bound on policies."""
    regional: bool = False
    """It knows the workers of a request's own region alone, and never sends one elsewhere."""
