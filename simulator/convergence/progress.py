"""A view only goes on: neither back at an epoch, nor back to one that it left."""


class Progress:
    """Of one shard of one incarnation of an edge."""

    def __init__(self) -> None:
        self._epoch = 0
        self._sequence = 0
        self._left: set[int] = set()

    def step_back(self, epoch: int, sequence: int) -> str | None:
        """The view is there now. Returns what is wrong with that.

        `epoch` 0: it has nothing, and begins anew, also with an earlier sequence of the epoch that it was in.
        """
        if not epoch:
            self._sequence = 0
            return None
        wrong = None
        if epoch in self._left:
            wrong = f"is back in epoch {epoch}, which it left for {self._epoch}"
        elif epoch == self._epoch and sequence < self._sequence:
            wrong = f"went back from {self._sequence} to {sequence}"
        if epoch != self._epoch:
            self._left.add(self._epoch)
            self._left.discard(epoch)
        self._epoch, self._sequence = epoch, sequence
        return wrong
