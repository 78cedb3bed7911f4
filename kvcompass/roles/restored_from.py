"""What a unit knows of the snapshot that its tables were restored from."""

from dataclasses import dataclass

from kvcompass.roles.messages import SubscribeRequest


@dataclass(frozen=True, slots=True)
class RestoredFrom:
    """A unit that started with its predecessor's tables."""

    epoch: int
    """Of the unit that wrote the snapshot."""
    sequence: int
    """Newest patch group in it, in that epoch."""
    workers: frozenset[str]
    """Workers that the tables hold something of."""

    def epoch_after(self, epoch: int) -> int:
        """The epoch to take at this start: that one, or the one after the snapshot's if a clock went back."""
        return max(epoch, self.epoch + 1)

    def may_know_less_than(self, request: SubscribeRequest) -> bool:
        """Whether the subscriber's view may have what came after the snapshot; one without a view has not."""
        if request.unit_epoch == 0:
            return request.loaded
        return request.unit_epoch != self.epoch or request.applied_sequence > self.sequence
