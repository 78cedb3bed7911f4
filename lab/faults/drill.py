"""A fleet that is up, and the means to break it and to wait until it is true again."""

import contextlib
import json
import os
import signal
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kvcompass.plan.model import Plan
from lab.faults.fault_fleet import roster_of
from lab.faults.truth import HOPS, Expected, untrue
from lab.faults.watch import Watch
from lab.fleet import Fleet
from lab.process import LabProcess
from services.maintenance.unit_state import UnitState

BOOT_LIMIT_S: Final = 90.0
_PAUSE_S: Final = 0.05
_DRAIN_S: Final = 40.0
"""An edge drains for 20 s at most, and asks balancers to notice before that."""
_SWITCH_S: Final = 30.0
_BUSY_LIMIT_S: Final = 15.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotRecoveredError(Exception):
    """Something that must come true did not, within a time that only a fault exceeds."""


class Drill:
    """Everything blocks the calling thread, which Ctrl-C ends."""

    def __init__(self, fleet: Fleet, watch: Watch) -> None:
        self.fleet = fleet
        self.watch = watch
        self.plan: Plan = fleet.blueprint.plan
        self.roster = roster_of(fleet.blueprint)
        self.kills: dict[str, list[float]] = defaultdict(list)
        """When each process was killed."""

    def until_busy(self, *names: str) -> str:
        """Waits until one of some engines or edges has a request, though not for ever; returns which."""
        busy: list[str] = []
        with contextlib.suppress(NotRecoveredError):
            self.until(lambda: self._add_busy(names, busy), _BUSY_LIMIT_S, "somebody has a request")
        return (busy or list(names))[0]

    def kill(self, *names: str) -> None:
        """SIGKILL, with nothing said to anybody."""
        for name in names:
            self.kills[name].append(time.monotonic())
            self.fleet.process(name).kill()

    def start(self, *names: str) -> float:
        """Starts killed processes; returns how long it took until all of them were there.

        An edge is when it answers at all, a unit when its kernels are loaded too: then it listens.
        """
        began = time.monotonic()
        for name in names:
            self.fleet.process(name).start()
        for name in names:
            self.until(lambda: self._answers(name, began), BOOT_LIMIT_S, f"{name} answers")  # noqa: B023
        return time.monotonic() - began

    def mend(self) -> list[str]:
        """Starts every process that is not running; returns their names."""
        names = [
            spec.name
            for stage in self.fleet.blueprint.stages
            for spec in stage.processes
            if not self.fleet.process(spec.name).running
        ]
        for name in names:
            self.fleet.process(name).kill()  # it has ended; this closes its log
            self.fleet.process(name).start()
        return names

    def restart_in_order(self, name: str) -> None:
        """As an operator does: SIGTERM, the process drains and ends, another one starts and is ready."""
        process = self.fleet.process(name)
        process.terminate()
        if not process.wait(_DRAIN_S):
            raise NotRecoveredError(f"{name} did not end within {_DRAIN_S:g} s of SIGTERM")
        process.kill()  # it has ended; this closes its log
        process.start()
        self.until(lambda: _is_ready(process), BOOT_LIMIT_S, f"{name} is ready")

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """SIGSTOP for the block: it does not run, and its sockets stay open."""
        pid = self.fleet.process(name).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def cut_off(self, region: str) -> Iterator[None]:
        """Nothing passes between the region and any other within the block."""
        ways = [(region, other) for other in self.plan.regions if other != region]
        ways += [(other, region) for region, other in ways]
        for origin, destination in ways:
            self.fleet.partition(origin, destination, cut=True)
        try:
            yield
        finally:
            for origin, destination in ways:
                self.fleet.partition(origin, destination, cut=False)

    @contextlib.contextmanager
    def patch_loss(self, share: float) -> Iterator[None]:
        """Units lose a share of their patch messages within the block."""
        for unit in self.roster.units:
            self.switch(unit, f"patch_loss/{share}")
        try:
            yield
        finally:
            for unit in self.roster.units:
                self.switch(unit, "patch_loss/0")

    def switch(self, name: str, what: str) -> None:
        """Sets a fault of a process on its operations listener. Errors: NotRecoveredError."""
        url = f"http://{self.fleet.blueprint.ops_addresses[name]}/faults/{what}"
        request = urllib.request.Request(url, method="PUT")
        try:
            with contextlib.closing(_DIRECT.open(request, timeout=_SWITCH_S)):
                pass
        except OSError as error:
            raise NotRecoveredError(f"{name} does not take {what}: {error}") from error

    def until_true(
        self, since: float, limit_s: float, *, down: frozenset[str] = frozenset(), hops: int = HOPS
    ) -> float:
        """Returns how long after `since` every view was seen to be true: later than it was, by 0.2 s a hop.

        `hops`: from who changed, to whom the change has to come.

        Errors: NotRecoveredError.
        """
        deadline = since + limit_s
        seen = since
        for _ in range(hops):
            seen = self._agreement(Expected(seen, down), deadline, limit_s)
        return seen - since

    def _agreement(self, expected: Expected, deadline: float, limit_s: float) -> float:
        """When nothing was untrue."""
        wrong: list[str] = []
        while time.monotonic() < deadline:
            wrong = untrue(self.roster, self.watch.sight(), expected)
            if not wrong:
                return time.monotonic()
            time.sleep(_PAUSE_S)
        raise NotRecoveredError(f"not true within {limit_s:g} s: {'; '.join(wrong[:6])}")

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Polls. Errors: NotRecoveredError, LabError when a process ended that is waited for."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotRecoveredError(f"{what}: not within {limit_s:g} s")
            time.sleep(_PAUSE_S)

    def fed_by(self, edge: str) -> set[str]:
        """Who feeds the shards of an edge's view: ids of the plan."""
        address = next(each.address for each in self.plan.edges if each.id == edge)
        return {str(shard["fed_by"]) for shard in _get(f"http://{address}/v1/kvcompass/state")["shards"]}

    def unit_details(self) -> list[dict[str, object]]:
        """What the units told last in their details; those that did not answer are left out."""
        sight = self.watch.sight()
        newest = [sight[unit][-1].told for unit in self.roster.units if sight[unit]]
        return [told["details"] for told in newest if told is not None]

    def _add_busy(self, names: Sequence[str], busy: list[str]) -> bool:
        busy += [name for name in names if self._is_busy(name)]
        return bool(busy)

    def _is_busy(self, name: str) -> bool:
        for edge in self.plan.edges:
            if edge.id == name:
                return bool(_get(f"http://{edge.address}/v1/kvcompass/state")["requests_in_progress"])
        url = next(worker.url for worker in self.plan.workers if worker.id == name)
        return bool(_get(f"{url}/v1/loads")["loads"][0]["num_running_reqs"])

    def _answers(self, name: str, began: float) -> bool:
        if not self.fleet.process(name).running:
            self.fleet.check()
        return any(
            glimpse.at >= began
            and glimpse.told is not None
            and glimpse.told.get("state") != UnitState.COMPILING
            for glimpse in self.watch.sight()[name]
        )


def _is_ready(process: LabProcess) -> bool:
    return process.ready()


def _get(url: str) -> dict[str, Any]:
    with contextlib.closing(_DIRECT.open(url, timeout=_SWITCH_S)) as answer:
        told: dict[str, Any] = json.load(answer)
    return told
