"""An epoch names one start of one process. It is larger than the one before unless the clock went back."""

import time


def new_epoch() -> int:
    """Microseconds since 1970: new at each start, never 0, compared only for equality."""
    return time.time_ns() // 1_000


def now_us() -> int:
    """The monotonic clock, in integer microseconds: the `now_us` that roles are given."""
    return time.monotonic_ns() // 1_000
