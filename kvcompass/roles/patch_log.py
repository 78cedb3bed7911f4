"""The newest patch groups of a shard, numbered, in a ring with a bound: every subscriber's outbox at once."""

from bisect import bisect_left
from typing import Final, NamedTuple


class LoggedGroups(NamedTuple):
    """`groups` consecutive patch groups, the first of them numbered `first`."""

    first: int
    groups: int
    payload: bytes
    work: int
    """What applying them costs a view, in groups; at least as many."""

    @property
    def last(self) -> int:
        """Number of the last group."""
        return self.first + self.groups - 1


_NEAR: Final = 16


def _last(entry: LoggedGroups) -> int:
    return entry.last


class PatchLog:
    """Appends at the end and forgets from the front.

    A subscriber is a sequence into the log. One at or above `floor` can be served the rest; one below it has
    fallen off and needs a snapshot. So a slow subscriber costs no memory of its own.
    """

    def __init__(self, *, groups_max: int, bytes_max: int) -> None:
        self._groups_max = groups_max
        self._bytes_max = bytes_max
        self._entries: list[LoggedGroups] = []
        self._head = 0
        self._groups = 0
        self._bytes = 0
        self.sequence = 0
        """Number of the newest group; 0 before the first."""
        self.floor = 0
        """Groups up to and including this one are forgotten."""
        self.restarted_at = 0
        """Sequence that stands for the newest change that patches cannot express."""

    def append(self, payload: bytes, groups: int, work: int = 0, *, known: int = 0) -> None:
        """Numbers `groups` groups. O(1) amortised; forgets from the front beyond the bounds.

        `work`: what applying them costs a view beyond `groups`, in groups. `known`: how many of them, the
        first ones, the log has already: they came in a message that is not cut, and keep their numbers.
        """
        assert 0 <= known < groups
        self._entries.append(LoggedGroups(self.sequence + 1 - known, groups, payload, groups + work))
        self.sequence += groups - known
        self._groups += groups
        self._bytes += len(payload)
        while self._groups > self._groups_max or self._bytes > self._bytes_max:
            self._forget_first()

    def restart(self) -> None:
        """Takes one sequence for a change that is no patch (a rebuilt table); forgets everything before."""
        self.begin(self.sequence + 1)

    def begin(self, sequence: int) -> None:
        """Forgets everything and goes on after `sequence`, which a snapshot stands for."""
        self.sequence = self.floor = self.restarted_at = sequence
        self._entries.clear()
        self._head = self._groups = self._bytes = 0

    def forget_up_to(self, sequence: int) -> None:
        """Groups up to this one are told to nobody any more. Precondition: they have been."""
        assert sequence <= self.sequence
        while self._head < len(self._entries) and self._entries[self._head].last <= sequence:
            self._forget_first()
        self.floor = max(self.floor, sequence)

    def after(self, sequence: int, work_max: int) -> LoggedGroups | None:
        """The groups that follow `sequence`, as one run of about `work_max`; None when there are none.

        The run may begin at or before `sequence` (an entry is never cut): the receiver refuses what it has.
        Precondition: `sequence >= floor`.
        """
        assert sequence >= self.floor
        if sequence >= self.sequence:
            return None
        start = self._holding(sequence + 1)
        stop = start + 1
        work = self._entries[start].work
        while stop < len(self._entries) and work + self._entries[stop].work <= work_max:
            if self._entries[stop].first != self._entries[stop - 1].last + 1:
                break
            work += self._entries[stop].work
            stop += 1
        run = self._entries[start:stop]
        groups = sum(entry.groups for entry in run)
        return LoggedGroups(run[0].first, groups, b"".join(entry.payload for entry in run), work)

    def _holding(self, sequence: int) -> int:
        """Position of the first entry with this group. Most subscribers are near the end: looked at first."""
        entries = self._entries
        start = len(entries) - 1
        near = max(self._head, start - _NEAR)
        if entries[near].last >= sequence:
            return bisect_left(entries, sequence, lo=self._head, hi=near, key=_last)
        while entries[start - 1].last >= sequence:
            start -= 1
        return start

    def _forget_first(self) -> None:
        entry = self._entries[self._head]
        self.floor = entry.last
        self._groups -= entry.groups
        self._bytes -= len(entry.payload)
        self._head += 1
        if self._head * 2 > len(self._entries):
            del self._entries[: self._head]
            self._head = 0
