"""Refuses load messages that were overtaken: loads are absolute, so only the newest may stand."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Stream:
    epoch: int
    sequence: int
    retired_epoch: int | None = None


class SequenceGuard:
    """Newest (epoch, sequence) by sender. Holes are allowed: a lost load is replaced by the next one.

    Epochs are compared for equality only (a sender's clock proves nothing); the epoch a sender has just left
    is remembered, so that a straggler of the old process cannot bring it back. Bounded by the caller, who
    asks only for senders of the plan.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def admit(self, sender: str, epoch: int, sequence: int) -> bool:
        """Whether this message is newer than all before it; if so it becomes the newest."""
        stream = self._streams.get(sender)
        if stream is None:
            self._streams[sender] = _Stream(epoch, sequence)
            return True
        if epoch == stream.retired_epoch:
            return False
        if epoch != stream.epoch:
            stream.retired_epoch, stream.epoch, stream.sequence = stream.epoch, epoch, sequence
            return True
        if sequence <= stream.sequence:
            return False
        stream.sequence = sequence
        return True
