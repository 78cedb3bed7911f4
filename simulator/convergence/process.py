"""A process of the fleet: it may be dead, stopped, or cut off from everybody."""

from typing import Any

from simulator.clock import Action


class Process:
    """One place where code runs. What was meant for an earlier incarnation never reaches a later one."""

    __slots__ = ("incarnation", "is_cut", "is_paused", "is_up", "name", "region", "waiting")

    def __init__(self, name: str, region: int) -> None:
        self.name = name
        self.region = region
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        """SIGSTOP: its sockets stay open, and what comes and what is due waits."""
        self.is_cut = False
        """Nothing passes between it and any other process."""
        self.waiting: list[tuple[Action, tuple[Any, ...]]] = []
        """What has come, or become due, while it was paused."""

    @property
    def is_reached(self) -> bool:
        """It runs, and an operator can ask it something."""
        return self.is_up and not self.is_paused and not self.is_cut

    def boot(self) -> None:
        """Another incarnation runs."""
        self.incarnation += 1
        self.is_up = True
        self.is_paused = False
        self.waiting.clear()

    def die(self) -> None:
        """Its memory and its timers are gone."""
        self.is_up = self.is_paused = False
        self.waiting.clear()
