"""Long work that no loop should wait in, such as compiling: off it, and abandoned when a process ends."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


async def in_daemon_thread(work: Callable[[], object], name: str) -> None:
    """Runs `work` in a thread of its own; raises what it raises.

    A thread of an executor would be joined at exit: a stop would wait until the compiler is done. Cancelling
    the wait does not stop the work.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def body() -> None:
        failure = None
        try:
            work()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, failure)

    threading.Thread(target=body, name=name, daemon=True).start()
    await done
