"""What a worker without events is taken to hold: the prompts it was sent, each for a time."""

from collections.abc import Iterable
from typing import Final

PREDICTED_KEYS_MOST: Final = 16_384
"""Of one worker, 5 MB. The 244,140 tokens that an A100 of the calibration caches are 60 prompts of 4,096
tokens, with 25 rungs each; the rest is for a host tier ten times as large."""


class PredictedKeys:
    """Keys of one worker, the least lately sent first; each is kept until its time, or until there are too
    many. They go in that order: where the time was shortened, those kept for longer go first all the same.
    """

    __slots__ = ("_limit", "_until_us", "dropped", "worker_id")

    def __init__(self, worker_id: str, limit: int = PREDICTED_KEYS_MOST) -> None:
        self.worker_id = worker_id
        self.dropped = 0
        """Keys that went before their time. Monotonic."""
        self._limit = limit
        self._until_us: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._until_us)

    def __contains__(self, key: int) -> bool:
        return key in self._until_us

    def keep(self, keys: Iterable[int], until_us: int) -> tuple[list[int], list[int]]:
        """Keep keys until a time. Returns those that are new, and those dropped for them."""
        kept, new = self._until_us, []
        for key in keys:
            if kept.pop(key, None) is None:
                new.append(key)
            kept[key] = until_us
        gone = [key for key, _ in zip(kept, range(len(kept) - self._limit), strict=False)]
        for key in gone:
            del kept[key]
        self.dropped += len(gone)
        return new, gone

    def expire(self, now_us: int) -> list[int]:
        """Forget the keys whose time is over, and return them."""
        gone: list[int] = []
        for key, until_us in self._until_us.items():
            if until_us > now_us:
                break
            gone.append(key)
        for key in gone:
            del self._until_us[key]
        return gone

    def clear(self) -> list[int]:
        """Forget all keys, and return them."""
        gone = list(self._until_us)
        self._until_us.clear()
        return gone
