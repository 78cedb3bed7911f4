"""Starts again what ends in a fleet that stays up, as the service manager of a real one would."""

from collections.abc import Callable, Sequence
from typing import Final

from lab.process import LabError, LabProcess

AFTER_S: Final = 5.0
"""From the end of a process to its next start: long enough to see what its absence does."""
_AT_ONCE_S: Final = 10.0
"""What ends sooner than this after its start was never well."""
_MOST_AT_ONCE: Final = 3
"""Such ends in a row are a fault."""


class Supervisor:
    """Times are passed in. `say` gets a line for every end and every start."""

    def __init__(self, processes: Sequence[LabProcess], say: Callable[[str], None]) -> None:
        self._processes = processes
        self._say = say
        self._started_s: dict[str, float] = {}
        self._due_s: dict[str, float] = {}
        self._at_once: dict[str, int] = {}

    def look(self, now_s: float) -> None:
        """Notice who has ended, and start whose time has come.

        Raises:
            LabError: One ended three times soon after its start, with its last log lines.
        """
        for process in self._processes:
            name = process.spec.name
            if process.running:
                continue
            if name not in self._due_s:
                self._ended(process, now_s)
            elif now_s >= self._due_s[name]:
                del self._due_s[name]
                self._started_s[name] = now_s
                self._say(f"{name} is started again")
                process.start()

    def _ended(self, process: LabProcess, now_s: float) -> None:
        name = process.spec.name
        soon = now_s - self._started_s.get(name, float("-inf")) < _AT_ONCE_S
        self._at_once[name] = self._at_once.get(name, 0) + 1 if soon else 0
        if self._at_once[name] == _MOST_AT_ONCE:
            raise LabError(f"{name} ends as soon as it is started:\n{process.tail()}", field=name)
        process.kill()  # what is left of its group
        self._due_s[name] = now_s + AFTER_S
        self._say(f"{name} ended; it is started again in {AFTER_S:g} s")
