"""Where a run's requests come from."""

from typing import Protocol

from simulator.request import Request


class RequestSource(Protocol):
    """Gives requests out one by one, so that memory does not grow with the workload. Used for one run."""

    @property
    def label(self) -> str:
        """Name, origin of the data (`synthetic` where nobody recorded it) and arrivals; for reports."""

    def next(self) -> Request | None:
        """The next request by `arrives_us` that does not wait for another's end; None after the last."""

    def ended(self, request: Request, now_us: int) -> Request | None:
        """A request's answer is complete (or it failed): in a closed loop its user's next."""
