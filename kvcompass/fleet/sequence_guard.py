"""Refuses load messages that were overtaken: loads are absolute, so only the newest may stand."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Stream:
    epoch: int
    sequence: int
    retired_epoch: int | None = None
    retired_sequence: int = -1

    def follow(self, epoch: int, sequence: int) -> None:
        """Go over to another epoch."""
        self.retired_epoch, self.retired_sequence = self.epoch, self.sequence
        self.epoch, self.sequence = epoch, sequence


class SequenceGuard:
    """Newest (epoch, sequence) by sender. Holes are allowed: a lost load is replaced by the next one.

    Epochs are compared for equality only (a sender's clock proves nothing); the epoch a sender has just left
    is remembered, so that a straggler of the old process cannot bring it back. A new stream can: where two
    processes speak for one sender, whoever came last is believed, and the other is told that it is not, so
    that it comes again. Bounded by the caller, who asks only for senders of the plan.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def open(self, sender: str, epoch: int, sequence: int) -> bool:
        """The first message of a stream: its epoch stands from here on, whatever stood before.

        Whether the message is newer than all before it of that epoch; if so it becomes the newest.
        """
        stream = self._streams.get(sender)
        if stream is not None and epoch == stream.retired_epoch:
            newest = stream.retired_sequence
            stream.follow(epoch, max(newest, sequence))
            return sequence > newest
        return self.admit(sender, epoch, sequence)

    def admit(self, sender: str, epoch: int, sequence: int) -> bool:
        """Whether this message is newer than all before it; if so it becomes the newest."""
        stream = self._streams.get(sender)
        if stream is None:
            self._streams[sender] = _Stream(epoch, sequence)
            return True
        if epoch == stream.retired_epoch:
            return False
        if epoch != stream.epoch:
            stream.follow(epoch, sequence)
            return True
        if sequence <= stream.sequence:
            return False
        stream.sequence = sequence
        return True
