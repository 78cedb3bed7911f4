"""What an agent sends to one maintenance unit: numbered edits, full reports when asked, renewals."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kvcompass.errors import LayoutMismatchError
from kvcompass.plan.model import Worker
from kvcompass.roles.holdings import ShardEdits
from kvcompass.roles.messages import (
    MESSAGE_KEYS_MOST,
    PROTOCOL_VERSION,
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    Handshake,
    Refusal,
    Renewal,
    ReportRequest,
    UnitToAgent,
    Welcome,
)
from kvcompass.roles.renewal_times import RenewalTimes
from kvcompass.roles.told_holdings import ToldHoldings

_CHUNK_KEYS: Final = 32_768
"""Keys in a message of a full report: about 0.3 MB."""
_KEY: Final = np.dtype(np.uint64)
_TIER: Final = np.dtype(np.uint8)


class ReportedWorker(Protocol):
    """Whose holdings are reported (`kvcompass.roles.worker_agent.WorkerAgent`)."""

    @property
    def worker(self) -> Worker:
        """As the plan has it."""
        ...

    @property
    def epoch(self) -> int:
        """Of the report streams from here on; it only grows."""
        ...

    @property
    def vouches(self) -> bool:
        """Whether what was reported stands; units are told nothing otherwise, so that the lease ends."""
        ...

    @property
    def told(self) -> ToldHoldings:
        """What units are to know of the worker's holdings now."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    keys: npt.NDArray[np.uint64]
    tiers: npt.NDArray[np.uint8]
    first: bool


class UnitReport:
    """State machine of the stream from one worker to one unit.

    Edits that the unit is too slow for are merged by key into one message; sequences are given as messages
    leave, so that whatever follows them describes the same holdings. When too many keys wait, a full report
    takes their place (counted): it says all they said.
    """

    def __init__(
        self,
        agent: ReportedWorker,
        shard: int,
        layout: Mapping[str, str],
        plan_version: int,
        *,
        lease_ms: int,
        pending_limit: int = 65_536,
        chunk_keys: int | None = None,
    ) -> None:
        """Start unconnected.

        `layout` is what the handshake claims, `lease_ms` the plan's. `pending_limit` counts keys; what waits
        fits one message too. `chunk_keys`: those in a message of a full report, when not the usual number.
        """
        self._agent = agent
        self._shard = shard
        self._layout = layout
        self._plan_version = plan_version
        self._limit = min(pending_limit, MESSAGE_KEYS_MOST)
        self._chunk_keys = chunk_keys
        self._pending: dict[int, int] = {}
        """Tier by key, not yet sent."""
        self._chunks: deque[_Chunk] = deque()
        self._epoch = agent.epoch
        self._told = agent.told
        """By what the stream goes: where that is another all at once, everything is told anew."""
        self._sequence = 0
        self._connected = False
        self._report_due = False
        self._renewal_times = RenewalTimes(lease_ms)
        self._renewal_due = False
        self._renewal_next: Renewal | None = None
        """To follow the edits just taken: made with them, before the holdings moved on."""
        self._just_renewed = False
        self.welcomed = False
        """The unit accepted the hello of the present stream."""
        self.acknowledged = 0
        """Last sequence the unit is known to have applied, in the current epoch."""
        self.overflows = 0
        self.full_reports = 0
        """Both count, and are monotonic."""

    def apply_plan(self, plan_version: int, lease_ms: int) -> None:
        """Go by the next version of the plan: the stream that is open stands, and is renewed by it.

        Until `settle_plan` the shorter lease of both versions is kept. `renewal_at_us` may be earlier for it.
        """
        self._plan_version = plan_version
        self._renewal_times.apply_plan(lease_ms)

    def settle_plan(self) -> None:
        """Go by the plan's own lease alone."""
        self._renewal_times.settle_plan()

    @property
    def shard(self) -> int:
        """Shard of the unit."""
        return self._shard

    @property
    def lease_ms(self) -> int:
        """As the unit told it; 0 before."""
        return self._renewal_times.told_ms

    @property
    def renewal_at_us(self) -> int:
        """When to `tend_lease`, on its clock; 0 once a stream begins."""
        return self._renewal_times.due_us

    @property
    def queued(self) -> int:
        """Keys whose edits wait to be sent."""
        return len(self._pending)

    @property
    def outdated(self) -> bool:
        """The agent's epoch changed: the stream is to be ended and opened anew."""
        return self._connected and self._epoch != self._agent.epoch

    def connect(self) -> AgentHello:
        """Return the first message of a new stream. What waited is dropped: the hello's digest covers it."""
        self.disconnected()
        if self._epoch != self._agent.epoch:
            self._epoch = self._agent.epoch
            self._sequence = 0
            self.acknowledged = 0
        self._connected = True
        self._told = self._agent.told
        worker_id = self._agent.worker.id
        handshake = Handshake(worker_id, self._epoch, PROTOCOL_VERSION, self._plan_version, self._layout)
        return AgentHello(handshake, worker_id, self._renewal())

    def disconnected(self) -> None:
        """The stream ended. Nothing is kept: the next hello starts from what is held then."""
        self._connected = self.welcomed = self._report_due = self._renewal_due = False
        self._renewal_next = None
        self._renewal_times.begin()
        self._pending.clear()
        self._chunks.clear()

    def on_message(self, message: UnitToAgent) -> None:
        """Take in what the unit says.

        Raises:
            LayoutMismatchError: The unit refused the handshake; the field is named.
        """
        match message:
            case Welcome(lease_ms=lease_ms, full_report_wanted=wanted):
                self.welcomed = True
                self._renewal_times.told_ms = lease_ms
                self._report_due = self._report_due or wanted
            case ReportRequest():
                self._report_due = True
            case Acknowledgement(sequence=sequence):
                self.acknowledged = max(self.acknowledged, sequence)
            case Refusal(field=field, message=text):
                raise LayoutMismatchError(text, field=field)

    def on_edits(self, edits: ShardEdits) -> None:
        """Queue one batch's edits of this shard. Unconnected there is nothing to add them to."""
        assert edits.shard == self._shard, "edits go to the unit of their shard"
        if not self._connected or self._report_due:
            return
        self._pending.update(edits.tiers)
        if len(self._pending) > self._limit:
            self.overflows += 1
            self._pending.clear()
            self._report_due = True

    def tend_lease(self, now_us: int, *, renewable: bool) -> None:
        """Renew when that is due and `renewable` (`WorkerAgent.may_renew`); else soon look again."""
        if now_us < self.renewal_at_us:
            return
        self._renewal_times.looked(now_us, renewed=renewable)
        if renewable:
            self.renew()

    def renew(self) -> None:
        """Have a renewal sent soon: right after the edits that wait, or between two chunks of a report."""
        self._renewal_due = True

    def take(self) -> AgentToUnit | None:
        """Return the next message to send; None when there is none now.

        Nothing is sent before the unit's welcome, nor while the agent does not vouch for the worker. A
        renewal that is due goes between two chunks of a full report, which may take longer than a lease, and
        before the edits that came up after those it follows: a busy worker is renewed too. However slow the
        stream, every other message is one of substance as long as there are any.
        """
        if not self.welcomed or not self._agent.vouches or self._epoch != self._agent.epoch:
            return None
        if self._renewal_next is not None:
            renewal, self._renewal_next = self._renewal_next, None
            return renewal
        if self._told is not self._agent.told:
            self._told = self._agent.told
            self._report_due = True
        if self._report_due:
            self._begin_report()
        between_chunks = bool(self._chunks) and not self._chunks[0].first and not self._just_renewed
        if self._renewal_due and (between_chunks or not (self._chunks or self._pending)):
            self._renewal_due = False
            self._just_renewed = True
            return self._renewal()
        self._just_renewed = False
        if self._chunks:
            chunk = self._chunks.popleft()
            return FullReport(self._next(), chunk.keys, chunk.tiers, chunk.first, not self._chunks)
        return self._take_edits() if self._pending else None

    def _take_edits(self) -> Edits:
        size = len(self._pending)
        keys = np.fromiter(self._pending.keys(), _KEY, size)
        tiers = np.fromiter(self._pending.values(), _TIER, size)
        self._pending.clear()
        edits = Edits(self._next(), keys, tiers)
        if self._renewal_due:
            self._renewal_due = False
            self._renewal_next = self._renewal()
        return edits

    def _begin_report(self) -> None:
        self._report_due = False
        self.full_reports += 1
        self._pending.clear()
        self._chunks.clear()
        keys, tiers = self._agent.told.report(self._shard)
        size = self._chunk_keys or _CHUNK_KEYS
        for start in range(0, max(1, len(keys)), size):
            piece = slice(start, start + size)
            self._chunks.append(_Chunk(keys[piece], tiers[piece], start == 0))

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _renewal(self) -> Renewal:
        told = self._agent.told
        return Renewal(self._sequence, told.digest(self._shard), told.count(self._shard))
