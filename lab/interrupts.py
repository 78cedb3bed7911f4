"""Ctrl-C and SIGTERM: both end a lab, and neither while it is ending."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interruptible() -> None:
    """From now on both raise KeyboardInterrupt.

    Ctrl-C's too: a job that a script starts in the background inherits an ignored SIGINT.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores both within the block: a second Ctrl-C must not keep the first from ending every process.

    Only the main thread is ever interrupted; elsewhere there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
