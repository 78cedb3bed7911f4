"""What happened in a run, in order: always as a digest, on demand as lines to read."""

import hashlib
from collections.abc import Callable

from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    Edits,
    FullReport,
    PatchGroups,
    Renewal,
    ReportRequest,
    SnapshotChunk,
    SubscribeRequest,
    Unavailable,
    Watermark,
    Welcome,
)


class Trace:
    """Everything that is noted enters the digest: two runs that differ anywhere have different ones."""

    __slots__ = ("_digest", "_write")

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        """`write` is given each line as it is noted."""
        self._digest = hashlib.blake2b(digest_size=16)
        self._write = write

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._digest.hexdigest()

    def note(self, now_us: int, who: str, what: str) -> None:
        """Something happened at a process, or to it."""
        line = f"{now_us / 1e6:10.6f} {who:<8} {what}"
        self._digest.update(line.encode())
        if self._write is not None:
            self._write(line)


def spelled(message: object) -> str:
    """A message in a word or two: what it is, and where it stands in its stream."""
    match message:
        case PatchGroups(first_sequence=first, count=count):
            return f"patches {first}+{count}"
        case Watermark(sequence=sequence):
            return f"watermark {sequence}"
        case SnapshotChunk(sequence=sequence, chunk=chunk, chunks=chunks):
            return f"snapshot at {sequence}, {chunk + 1} of {chunks}"
        case Edits(sequence=sequence, keys=keys):
            return f"edits {sequence}, {keys.size} keys"
        case FullReport(sequence=sequence, keys=keys, last=last):
            return f"report {sequence}, {keys.size} keys{', last' if last else ''}"
        case Renewal(sequence=sequence, holdings=holdings):
            return f"renewal at {sequence}, {holdings} keys"
        case AgentHello(handshake=handshake, holdings=held):
            return f"hello of epoch {handshake.epoch} at {held.sequence}, {held.holdings} keys"
        case SubscribeRequest(unit_epoch=epoch, applied_sequence=applied):
            return f"subscribe from {epoch}/{applied}"
        case Welcome(full_report_wanted=wanted):
            return f"welcome{', report wanted' if wanted else ''}"
        case ReportRequest(reason=reason):
            return f"report wanted: {reason}"
        case Acknowledgement(sequence=sequence):
            return f"applied {sequence}"
        case Unavailable(reason=unavailable):
            return f"unavailable: {unavailable.value}"
        case _:
            return str(message)
