"""What an edge makes of load reports, one at a time and by the words of `kvcompass.fleet.view`: a twin."""

from dataclasses import dataclass, field

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.kernels.loads import RATE_BAND


@dataclass
class Own:
    """Own prefill work at a worker."""

    sent_us: int
    work_us: int


@dataclass
class NaiveReports:
    """The reports of one worker."""

    local: bool
    round_trip_us: int
    weight: float
    lease_us: int
    planned_rate: float
    rate: float
    load: WorkerLoad | None = None
    learned_us: int = 0
    believed_ms: float = 0.0
    told_tokens: float = -1.0
    unreported: list[Own] = field(default_factory=list)

    def report(self, load: WorkerLoad, received_us: int, *, live: bool) -> None:
        """One more load."""
        sent_us = received_us - load.age_ms * 1000
        silent = self.load is None or sent_us - self.learned_us > self.lease_us
        out = self.load is not None and self.load.state is not WorkerState.READY
        until_us = (received_us if live else sent_us) - self.round_trip_us
        shown = [own for own in self.unreported if own.sent_us <= until_us]
        self.unreported = [own for own in self.unreported if own.sent_us > until_us]
        believed_ms = self.believed_ms + sum(own.work_us for own in shown) / 1000.0
        weight = 1.0 if self.local or silent or out else self.weight
        self.believed_ms = believed_ms + weight * (load.queue_ms - believed_ms)
        if load.prefill_ms_per_token > 0.0:
            most, least = self.planned_rate * RATE_BAND, self.planned_rate / RATE_BAND
            self.rate = min(max(load.prefill_ms_per_token, least), most)
        if self.load is None or sent_us >= self.learned_us:
            room = load.max_tokens or load.used_tokens
            untold = load.running > 0 and load.used_tokens == 0
            self.told_tokens = -1.0 if untold else float(min(load.used_tokens, room))
        self.learned_us = sent_us if self.load is None else max(self.learned_us, sent_us)
        self.load = load
