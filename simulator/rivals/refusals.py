"""Which workers have refused a request, so that it tries each of them once."""


class Refusals:
    """By request, for the region that dispatched it. Forgotten when the request ends there."""

    def __init__(self) -> None:
        self._by: dict[int, list[int]] = {}

    def add(self, request_id: int, worker: int) -> list[int]:
        """Note one more; returns all of them, in order."""
        refused = self._by.setdefault(request_id, [])
        refused.append(worker)
        return refused

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        if self._by:
            self._by.pop(request_id, None)
