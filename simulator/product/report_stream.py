"""The stream from one worker's agent to one maintenance unit."""

from typing import Protocol

from kvcompass.roles.messages import AgentHello, AgentToUnit, Refusal, UnitToAgent
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from kvcompass.roles.worker_source import AgentSession
from simulator.clock import Action
from simulator.errors import SimulationError
from simulator.product import sizes
from simulator.product.backoff import Backoff
from simulator.product.periods import RENEWALS_A_LEASE, RENEWED_AGAIN
from simulator.router import Site


class ReportServer(Protocol):
    """The unit, as a stream meets it."""

    @property
    def region(self) -> int:
        """Where it stands."""

    def register(self, stream: "ReportStream", attempt: int, hello: AgentHello) -> UnitToAgent:
        """A stream begins: what the unit says to it."""

    def dialled(self, stream: "ReportStream", attempt: int, hello: AgentHello) -> None:
        """The same; the answer is sent."""

    def reported(self, stream: "ReportStream", attempt: int, message: AgentToUnit) -> None:
        """Its next message."""


class ReportStream:
    """Drives one `UnitReport` as `services.worker_agent.report_stream` does.

    What comes of an attempt that has been given up is thrown away, as of a closed connection.
    """

    def __init__(
        self,
        site: Site,
        agent: WorkerAgent,
        report: UnitReport,
        unit: ReportServer,
        region: int,
        backoff: Backoff,
    ) -> None:
        self.report = report
        self.region = region
        self.attempt = 0
        """The present one, at the agent."""
        self.session: AgentSession | None = None
        """At the unit, of the attempt that it has heard of last, which is"""
        self.session_attempt = -1
        self._site = site
        self._agent = agent
        self._unit = unit
        self._backoff = backoff
        self._renewing = False

    # --- at the agent -----------------------------------------------------------------------------

    def start(self) -> None:
        """Register when the run begins, with no way between: the fleet has long been up."""
        self._site.begin(self._unit.region, self._register, self.report.connect())

    def _register(self, hello: AgentHello) -> None:
        welcome = self._unit.register(self, self.attempt, hello)
        self._site.begin(self.region, self.answered, self.attempt, welcome)

    def dial(self) -> None:
        """Open the stream; when that cannot be, try again later."""
        if not self._agent.vouches:
            self._site.after(self._backoff.next_us(), self.dial)
            return
        hello = self.report.connect()
        if not self._send(sizes.agent_to_unit(hello), self._unit.dialled, hello):
            self._broken()

    def wake(self) -> None:
        """Send what there is to send."""
        take, unit = self.report.take, self._unit
        while (message := take()) is not None:
            if not self._send(sizes.agent_to_unit(message), unit.reported, message):
                self._broken()
                return

    def answered(self, attempt: int, message: UnitToAgent) -> None:
        """The unit says something."""
        if attempt != self.attempt:
            return
        if isinstance(message, Refusal):
            raise SimulationError(f"a unit refuses its agent: {message.message}", field=message.field)
        self.report.on_message(message)
        if self.report.welcomed and not self._renewing:
            self._renewing = True
            self._backoff.reset()
            self._renew(attempt)
        else:
            self.wake()

    def _renew(self, attempt: int) -> None:
        if attempt == self.attempt:
            period_us = self.report.lease_ms * 1_000 // RENEWALS_A_LEASE
            if self._agent.may_renew(self._site.now_us):
                self.report.renew()
            else:
                period_us = round(RENEWED_AGAIN * period_us)
            self._site.after(period_us, self._renew, attempt)
            self.wake()

    def _send(self, size: int, action: Action, message: AgentToUnit) -> bool:
        return self._site.send_reliably(self._unit.region, action, size, (self, self.attempt, message))

    def _broken(self) -> None:
        self.report.disconnected()
        self.attempt += 1
        self._renewing = False
        self._site.after(self._backoff.next_us(), self.dial)
