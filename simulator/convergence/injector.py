"""Makes a schedule's faults happen, and caches churn meanwhile."""

from collections.abc import Callable
from itertools import combinations, product
from typing import Any, Final

from kvcompass.wan import Link
from simulator.clock import Priority
from simulator.convergence.faults import Fault, FaultKind, Schedule
from simulator.convergence.fleet import Fleet
from simulator.convergence.forger import Forger
from simulator.convergence.operator import Operator
from simulator.convergence.plan_change import Witness
from simulator.product.periods import KEEPALIVE_US
from simulator.streams import random_stream

_LOSS: Final = 0.4
_COPIES: Final = 0.2
_OVERTAKING: Final = 0.2
_JITTER: Final = 0.5
"""Of the worst links: shares of their messages, and of their delay."""

_ANCHOR_US: Final = 400_000

_FAULT: Final = Priority.ENGINE
"""Before everything else of the same instant."""
_LOOKED_US: Final = 100_000
"""From one look whether the plan has changed everywhere to the next."""


def _nothing() -> None:
    pass


class Injector:
    """Owns what is broken. Faults may overlap: what two of them broke is whole when both have ended."""

    def __init__(self, fleet: Fleet, schedule: Schedule, patience_us: int) -> None:
        """`patience_us`: the plan has so long to change everywhere once nothing fails."""
        self.fleet: Final = fleet
        self.schedule: Final = schedule
        self._patience_us = patience_us
        self._pairs = list(combinations(range(len(fleet.shape.plan.regions)), 2))
        self.operator: Operator | None = None
        """Once the plan has begun to change."""
        self.is_quiet = False
        """Nothing fails any more, the plan stays, and so do caches."""
        self.on_quiet: Callable[[], None] = _nothing
        self.witness: Witness | None = None
        """Of changes of the plan."""
        self.on_change: Callable[[], None] = _nothing
        """Called right before and right after a fault begins or ends."""
        self._active: list[Fault] = []
        self._victims = fleet.victims
        self._churns = random_stream(fleet.seed, "convergence churn")
        self._churn_us = self._churns.choice((30_000, 100_000, 400_000))

    def start(self) -> None:
        """Have everything happen in its time."""
        for fault in self.schedule.faults:
            self._at(fault.at_us, self._happen, self._begin, fault)
            if fault.until_us > fault.at_us:
                self._at(fault.until_us, self._happen, self._end, fault)
        self._churn()
        self._at(self.schedule.quiet_us, self._look_for_quiet)
        self._at(_ANCHOR_US, self._anchor)
        if self.schedule.change_us is not None:
            self._at(self.schedule.change_us, self._change_plan)

    def _at(self, at_us: int, action: Callable[..., None], *args: Any) -> None:
        self.fleet.clock.at(at_us, _FAULT, action, *args)

    # --- caches -----------------------------------------------------------------------------------

    def _churn(self) -> None:
        fleet = self.fleet
        if not self.is_quiet:
            worker = fleet.workers[self._churns.randrange(len(fleet.workers))]
            if worker.engine.answers and not worker.has_left:
                worker.engine.churn(self._churns)
            self._at(fleet.now_us + round(self._churns.expovariate(1 / self._churn_us)), self._churn)

    def _look_for_quiet(self) -> None:
        """Caches go on changing until the plan has changed everywhere: what is new is acknowledged."""
        changes = self.operator is not None and not self.operator.is_done
        if changes and self.fleet.now_us < self.schedule.quiet_us + self._patience_us:
            self._at(self.fleet.now_us + _LOOKED_US, self._look_for_quiet)
            return
        self.is_quiet = True
        self._last_word()
        self.on_quiet()

    def _last_word(self) -> None:
        """Where nothing can be replayed, only another batch shows that the last ones were lost."""
        for worker in self.fleet.workers:
            if worker.engine.answers:
                worker.engine.speak()

    def _change_plan(self) -> None:
        """The fleet goes over to the next version, or to several. New workers start at once."""
        assert self.witness is not None
        self.operator = Operator(self.fleet, self.witness)
        self.operator.start()

    def _anchor(self) -> None:
        """The first worker has more and more of what it never gives up."""
        fleet = self.fleet
        if not self.is_quiet and fleet.workers[0].engine.take_in_kept():
            self._at(fleet.now_us + _ANCHOR_US, self._anchor)

    # --- faults -----------------------------------------------------------------------------------

    @property
    def links_are_impaired(self) -> bool:
        """Links between regions lose messages, delay them or pass none."""
        return any(fault.kind in (FaultKind.PART, FaultKind.BAD_LINKS) for fault in self._active)

    def _happen(self, change: Callable[[Fault], None], fault: Fault) -> None:
        self.on_change()
        change(fault)
        self.on_change()

    def _begin(self, fault: Fault) -> None:
        self._note(fault, "begins")
        self._active.append(fault)
        fleet = self.fleet
        match fault.kind:
            case FaultKind.KILL:
                process = self._victims[fault.target]
                if process.is_up:
                    fleet.kill(process)
            case FaultKind.STOP:
                self._victims[fault.target].is_paused = self._victims[fault.target].is_up
                self._at(fleet.now_us + KEEPALIVE_US, self._keepalive, fault)
            case FaultKind.CUT:
                self._victims[fault.target].is_cut = True
                self._at(fleet.now_us + KEEPALIVE_US, self._keepalive, fault)
            case FaultKind.PART:
                self._set_links()
                self._at(fleet.now_us + KEEPALIVE_US, self._keepalive, fault)
            case FaultKind.BAD_LINKS:
                self._set_links()
            case FaultKind.ENGINE_KILL:
                fleet.workers[fault.target].engine.kill()
            case FaultKind.ENGINE_STOP:
                engine = fleet.workers[fault.target].engine
                engine.is_paused = engine.is_up
            case FaultKind.ENGINE_RESTART:
                engine = fleet.workers[fault.target].engine
                if engine.answers:
                    engine.restart()
            case FaultKind.FLUSH:
                if fleet.workers[fault.target].engine.answers:
                    fleet.workers[fault.target].engine.clear()
            case FaultKind.EVENT_LOSS:
                self._set_event_loss(fault.target)
            case FaultKind.FORGE:
                self._forge(fleet.workers[fault.target].planned)

    def _end(self, fault: Fault) -> None:
        self._note(fault, "ends")
        self._active.remove(fault)
        fleet = self.fleet
        match fault.kind:
            case FaultKind.KILL:
                process = self._victims[fault.target]
                if not process.is_up and not self._still(fault):
                    fleet.start_again(process)
            case FaultKind.STOP:
                process = self._victims[fault.target]
                if process.is_paused and not self._still(fault):
                    fleet.fabric.resume(process)
            case FaultKind.CUT:
                self._victims[fault.target].is_cut = self._still(fault)
            case FaultKind.PART | FaultKind.BAD_LINKS:
                self._set_links()
            case FaultKind.ENGINE_KILL:
                engine = fleet.workers[fault.target].engine
                if not engine.is_up and not fault.for_good and not self._still(fault):
                    engine.restart()
            case FaultKind.ENGINE_STOP:
                fleet.workers[fault.target].engine.is_paused = self._still(fault)
            case FaultKind.EVENT_LOSS:
                self._set_event_loss(fault.target)
            case FaultKind.ENGINE_RESTART | FaultKind.FLUSH | FaultKind.FORGE:
                pass

    def _forge(self, worker_id: str) -> None:
        fleet = self.fleet
        for process, node in zip(fleet.unit_processes, fleet.units, strict=True):
            if process.is_reached:
                forger = Forger(node, worker_id, fleet.shape.layout)
                fleet.fabric.own(process, forger)
                fleet.fabric.act(process, forger.speak, fleet.now_us)

    def _still(self, fault: Fault) -> bool:
        """Another fault of the kind has the same target now."""
        return any((other.kind, other.target) == (fault.kind, fault.target) for other in self._active)

    def _keepalive(self, fault: Fault) -> None:
        """Whoever has heard nothing of the other side for so long takes the connection for broken."""
        if fault not in self._active:
            return
        parted = self._pairs[fault.target] if fault.kind is FaultKind.PART else None
        for stream, client, server in list(self.fleet.streams()):
            if parted is None:
                silent = self._victims[fault.target] in (client, server)
            else:
                silent = {client.region, server.region} == set(parted)
            if silent:
                self.fleet.fabric.break_off(stream)

    def _set_links(self) -> None:
        fleet, bad = self.fleet, [f for f in self._active if f.kind is FaultKind.BAD_LINKS]
        parted = {self._pairs[f.target] for f in self._active if f.kind is FaultKind.PART}
        worst = max((fault.severity for fault in bad), default=0.0)
        fleet.fabric.late_copies = _COPIES * worst
        regions = range(len(fleet.shape.plan.regions))
        for a, b in product(regions, regions):
            plain = fleet.plain_link(a, b)
            if a == b and not fleet.shape.lossy:
                continue
            bad_link = Link(
                plain.one_way_ms,
                jitter_ms=plain.jitter_ms + _JITTER * worst * plain.one_way_ms,
                loss=_LOSS * worst,
                duplicate=_COPIES * worst,
                reorder=_OVERTAKING * worst,
                partition=(min(a, b), max(a, b)) in parted,
            )
            fleet.network.set_link(a, b, bad_link)

    def _set_event_loss(self, number: int) -> None:
        losses = [f.severity for f in self._active if (f.kind, f.target) == (FaultKind.EVENT_LOSS, number)]
        followed = self.fleet.workers[number].followed
        if followed is not None:
            followed.live_loss = 0.5 * max(losses, default=0.0)

    def _note(self, fault: Fault, what: str) -> None:
        self.fleet.trace.note(self.fleet.now_us, _where(self, fault), f"{fault.kind} {what}")


def _where(injector: Injector, fault: Fault) -> str:
    match fault.kind:
        case FaultKind.KILL | FaultKind.STOP | FaultKind.CUT:
            return injector._victims[fault.target].name
        case FaultKind.PART:
            regions = injector.fleet.shape.plan.regions
            return "-".join(regions[region] for region in injector._pairs[fault.target])
        case FaultKind.BAD_LINKS:
            return "links"
        case _:
            return f"worker-{fault.target}"
