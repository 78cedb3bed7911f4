"""Refuses load messages that were overtaken: loads are absolute, so only the newest may stand."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Stream:
    epoch: int
    sequence: int
    retired_epoch: int | None = None
    retired_sequence: int = -1

    def newest(self, epoch: int) -> int:
        """Sequence of the newest message of an epoch; -1 where nothing is known of it."""
        if epoch == self.epoch:
            return self.sequence
        return self.retired_sequence if epoch == self.retired_epoch else -1

    def follow(self, epoch: int, sequence: int) -> None:
        """Go on from there."""
        if epoch != self.epoch:
            self.retired_epoch, self.retired_sequence = self.epoch, self.sequence
            self.epoch = epoch
        self.sequence = sequence


class SequenceGuard:
    """Newest (epoch, sequence) by sender. Holes are allowed: a lost load is replaced by the next one.

    Epochs are compared for equality only (a sender's clock proves nothing); the epoch a sender has just left
    is remembered, so that a straggler of the old process cannot bring it back. A new stream can, and an
    earlier sequence too: whoever opened its stream last is believed, whatever was said before in its name,
    and the other is told that it is not, so that it comes again. Bounded by the caller, who asks only for
    senders of the plan.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def open(self, sender: str, epoch: int, sequence: int) -> bool:
        """The first message of a stream: what follows it is compared with it alone.

        Whether it is itself newer than all before it of its epoch. If it is not, it may have waited for its
        stream while others came another way.
        """
        stream = self._streams.get(sender)
        if stream is None:
            return self.admit(sender, epoch, sequence)
        newest = stream.newest(epoch)
        stream.follow(epoch, sequence)
        return sequence > newest

    def admit(self, sender: str, epoch: int, sequence: int) -> bool:
        """Whether this message is newer than all before it; if so it becomes the newest."""
        stream = self._streams.get(sender)
        if stream is None:
            self._streams[sender] = _Stream(epoch, sequence)
            return True
        if epoch == stream.retired_epoch:
            return False
        if epoch == stream.epoch and sequence <= stream.sequence:
            return False
        stream.follow(epoch, sequence)
        return True
