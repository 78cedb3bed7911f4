"""Somebody in every region who goes on asking while things break."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import httpx

from lab.compose_test.front import Front, new_prompt

_PAUSE_S = 0.5
_PROMPT_TOKENS = 512


class Users:
    """One thread a region, one short request after the other. What fails is an error, unless excused."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._stop = threading.Event()
        self._excused: set[str] = set()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(region,), daemon=True, name=f"user-{region}")
            for region in front.edges
        ]
        self.asked = 0
        self.errors: Counter[str] = Counter()
        """`region: what`, and how often."""

    @contextmanager
    def excusing(self, region: str) -> Iterator[None]:
        """Failures of this region do not count within the block: its only edge is down."""
        with self._lock:
            self._excused.add(region)
        try:
            yield
        finally:
            with self._lock:
                self._excused.discard(region)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60.0)

    def _ask_on(self, region: str) -> None:
        while not self._stop.wait(_PAUSE_S):
            before = self._is_excused(region)
            try:
                self._front.ask(region, new_prompt(_PROMPT_TOKENS), admin=False)
                failure = ""
            except httpx.HTTPStatusError as error:
                failure = f"{error.response.status_code} {error.response.text[:200]}"
            except httpx.HTTPError as error:
                failure = f"{type(error).__name__} {error}"
            with self._lock:
                self.asked += 1
                if failure and not before and region not in self._excused:
                    self.errors[f"{region}: {failure}"] += 1

    def _is_excused(self, region: str) -> bool:
        with self._lock:
            return region in self._excused
