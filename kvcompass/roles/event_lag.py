"""How far behind its engine an agent is: for how long events have waited to be taken in."""


class EventLag:
    """Measures from the last moment at which nothing waited, on the agent's own clock.

    So it is never less than the age of the oldest event that waits, and needs no clock of the engine.
    """

    __slots__ = ("_since_us", "is_late")

    def __init__(self) -> None:
        """Nothing waits."""
        self._since_us: int | None = None
        self.is_late = False
        """It was longer than it may be, when last looked at."""

    def waits(self, now_us: int) -> None:
        """Something waits, or may: it is not looked at meanwhile."""
        if self._since_us is None:
            self._since_us = now_us

    def all_taken(self) -> None:
        """Nothing waits. Whether it is late is said when it is next looked at."""
        self._since_us = None

    def us(self, now_us: int) -> int:
        """For how long events have waited; 0 while none does."""
        return 0 if self._since_us is None else now_us - self._since_us

    def look(self, now_us: int, most_us: int) -> None:
        """Say whether it is longer than it may be."""
        self.is_late = self.us(now_us) > most_us
