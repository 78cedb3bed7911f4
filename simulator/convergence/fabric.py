"""What lies between processes: their timers, the messages between them, and how connections break."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from simulator.clock import Action, Clock, Priority
from simulator.convergence.process import Process
from simulator.convergence.stream import Stream
from simulator.convergence.trace import Trace, spelled
from simulator.network import Network
from simulator.product.periods import KEEPALIVE_US

_TIMER: Final = Priority.TIMER
LATE_US: Final = 1_000_000
"""A copy comes so much later, at most."""


class Fabric:
    """A `simulator.place.Place` for all processes. Timers belong to who set them, and die with that process.

    A message is for the process that owns the object whose method it calls. Where messages are `lossy`, even
    those of a stream are lost, repeated and reordered by their links, which TCP would not let happen: the
    roles promise to notice. Otherwise they are late, or their connection breaks.
    """

    def __init__(self, clock: Clock, network: Network, trace: Trace, random: Random, *, lossy: bool) -> None:
        self.clock: Final = clock
        self.network: Final = network
        self.trace: Final = trace
        self.lossy: Final = lossy
        self._random = random
        self.on_arrival: Callable[[Action, tuple[Any, ...]], None] | None = None
        """Told of each message when it has been taken in."""
        self.late_copies = 0.0
        """Share of messages of which a copy comes within the next second too, where they are lossy."""
        self.unreached = 0
        """Messages that found nobody."""
        self._current: Process | None = None
        self._owners: dict[int, tuple[Process, int | None, object]] = {}
        """By id of the object: its process and incarnation; None: an address, whoever stands there."""

    # --- Place ------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """Virtual time."""
        return self.clock.now_us

    @property
    def here(self) -> int:
        """Region of the process whose code runs."""
        assert self._current is not None
        return self._current.region

    def begin(self, region: int, action: Action, *args: Any) -> None:
        """At once, in the process that it is meant for."""
        process, _ = self._owner(action)
        self.act(process, action, *args)

    def after(self, delay_us: int, action: Action, *args: Any) -> None:
        """Set a timer of the process whose code runs."""
        process = self._current
        assert process is not None
        at_us = self.clock.now_us + delay_us
        self.clock.at(at_us, _TIMER, self._due, process, process.incarnation, action, args)

    def send_reliably(self, region: int, action: Action, size: int = 0, args: tuple[Any, ...] = ()) -> bool:
        """Send a message of a stream. False: it is known at once that it does not get there."""
        sender = self._current
        assert sender is not None
        target, incarnation = self._owner(action)
        assert target.region == region
        if sender.is_cut or target.is_cut:
            return self.lossy
        arrival = (sender, target, incarnation, action, args)
        if not self.lossy:
            return self.network.send_reliably(sender.region, region, size, self._arrive, *arrival)
        self.network.send(sender.region, region, size, self._arrive, *arrival)
        if self.late_copies and self._random.random() < self.late_copies:
            late_us = self.clock.now_us + round(self._random.uniform(0, LATE_US))
            self.clock.at(late_us, Priority.MESSAGE, self._arrive, *arrival)
        return True

    def count(self, source: int, target: int, size: int) -> None:
        """Nothing is counted by size."""

    # --- processes --------------------------------------------------------------------------------

    def own(self, process: Process, *things: object, address: bool = False) -> None:
        """What is sent to these objects is for a process. `address`: for whichever incarnation runs then."""
        incarnation = None if address else process.incarnation
        for thing in things:
            self._owners[id(thing)] = process, incarnation, thing

    def act(self, process: Process, action: Action, *args: Any) -> None:
        """Run code in a process now, or as soon as it goes on."""
        if process.is_paused:
            process.waiting.append((action, args))
            return
        before, self._current = self._current, process
        action(*args)
        self._current = before

    def resume(self, process: Process) -> None:
        """A paused process goes on: first with all that waits, in order."""
        process.is_paused = False
        waiting, process.waiting = process.waiting, []
        for action, args in waiting:
            self.act(process, action, *args)

    # --- connections ------------------------------------------------------------------------------

    def break_off(self, stream: Stream) -> None:
        """Both ends of an open stream find out by themselves that it is broken, by keepalives."""
        for end in (stream.hung_up, stream.far_end):
            process, incarnation = self._owner(end)
            if process.is_up and incarnation in (None, process.incarnation):
                args = (stream.attempt,) if end == stream.hung_up else (stream, stream.attempt)
                self.act(process, end, *args)

    def close(self, stream: Stream, source: Process) -> None:
        """The kernel of a process that has died tells the other end of a stream."""
        client, _ = self._owner(stream.hung_up)
        server, _ = self._owner(stream.far_end)
        if source is client:
            self._reset(client, server, stream.far_end, stream, stream.attempt)
        else:
            self._reset(server, client, stream.hung_up, stream.attempt)

    # --- inside -----------------------------------------------------------------------------------

    def _owner(self, action: Action) -> tuple[Process, int | None]:
        process, incarnation, _ = self._owners[id(action.__self__)]  # type: ignore[attr-defined]  # a bound method
        return process, incarnation

    def _due(self, process: Process, incarnation: int, action: Action, args: tuple[Any, ...]) -> None:
        if process.is_up and process.incarnation == incarnation:
            self.act(process, action, *args)

    def _reset(self, source: Process, target: Process, action: Action, *args: Any) -> None:
        """One end of a connection is told that nobody is at the other."""
        arrival = (self._due, target, target.incarnation, action, args)
        if (
            source.is_cut
            or target.is_cut
            or not self.network.send_reliably(source.region, target.region, 0, *arrival)
        ):
            # It finds out by itself.
            self.clock.at(self.clock.now_us + KEEPALIVE_US, _TIMER, *arrival)

    def _take_in(self, process: Process, action: Action, args: tuple[Any, ...]) -> None:
        self.trace.note(self.clock.now_us, process.name, f"{action.__name__} {spelled(args[-1])}")
        action(*args)
        if self.on_arrival is not None:
            self.on_arrival(action, args)

    def _arrive(
        self,
        sender: Process,
        target: Process,
        incarnation: int | None,
        action: Action,
        args: tuple[Any, ...],
    ) -> None:
        if target.is_up and incarnation in (None, target.incarnation):
            self.act(target, self._take_in, target, action, args)
            return
        self.unreached += 1
        end = getattr(action, "__self__", None)
        if isinstance(end, Stream):
            self._reset(target, sender, end.far_end, end, args[0])
        elif isinstance(args[0], Stream) and action != args[0].far_end:
            self._reset(target, sender, args[0].hung_up, args[1])
