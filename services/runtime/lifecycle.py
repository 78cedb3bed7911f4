"""The life of a process: background tasks, SIGTERM and SIGINT, an orderly end."""

import asyncio
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import uvloop

from kvcompass.errors import KVCompassError
from services.runtime.logs import get_logger

_FILES: Final = 65_536
"""Open files a service may ask for; its listeners' bounds of connections keep it far below."""

Main = Callable[["Lifecycle"], Coroutine[Any, Any, None]]


class Lifecycle:
    """Owns a service's background tasks. A background task that fails ends the service, aloud."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._log = get_logger("lifecycle")

    def background(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs `work` until it returns or the service ends; it is cancelled then."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is None:
            return
        self._failure = self._failure or failure
        if isinstance(failure, KVCompassError):
            self._log.error("background task failed", task=task.get_name(), reason=str(failure))
        else:
            self._log.error("background task failed", task=task.get_name(), exc_info=failure)
        self.stopping.set()

    def stop(self) -> None:
        """Asks the service to end; safe to call more than once."""
        self.stopping.set()

    async def unless_stopped(self, work: Coroutine[Any, Any, None], name: str) -> bool:
        """Runs `work` to its end; returns whether it got there before a stop, which leaves it to `close`.

        A failure of `work` is a stop too, and raised by `close`.
        """
        task = self.background(work, name)
        stop = asyncio.create_task(self.stopping.wait(), name=f"stop of {name}")
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        return task.done() and not task.cancelled() and task.exception() is None

    async def close(self) -> None:
        """Cancels what still runs and waits for it. Raises the first background failure."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure


def run(main: Main) -> None:
    """Runs a service on uvloop until `main` returns.

    An operating error becomes one line on stderr and exit status 2.
    """

    async def _supervised() -> None:
        lifecycle = Lifecycle()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lifecycle.stop)
        try:
            await main(lifecycle)
        finally:
            await lifecycle.close()

    _raise_file_limit()
    try:
        uvloop.run(_supervised())
    except KVCompassError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        raise SystemExit(2) from None


def _raise_file_limit() -> None:
    """Shells give 1,024 open files by default: fewer than the connections that a listener accepts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
