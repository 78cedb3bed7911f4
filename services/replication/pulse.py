"""Wakes every waiting subscriber stream when what it is served from has changed."""

import asyncio


class Pulse:
    """`wait` returns at the next `beat`. A beat that comes between two waits is not kept: look, then wait."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def beat(self) -> None:
        """Wakes all that wait now."""
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def wait(self, timeout_s: float) -> None:
        """Until the next beat, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._next.wait()
        except TimeoutError:
            return
