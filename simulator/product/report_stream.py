"""The stream from one worker's agent to one maintenance unit."""

from typing import Protocol

from kvcompass.plan.model import Plan
from kvcompass.roles.backoff import Backoff, refused_us
from kvcompass.roles.messages import STREAM_FIELD, AgentHello, AgentToUnit, Refusal, UnitToAgent
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from simulator.clock import Action
from simulator.errors import SimulationError
from simulator.place import Place
from simulator.product import sizes
from simulator.product.periods import ANSWER_US


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

    def agent_hung_up(self, stream: "ReportStream", attempt: int) -> None:
        """It has ended."""


class ReportStream:
    """Drives one `UnitReport` as `services.worker_agent.report_stream` does.

    What comes of an attempt that has been given up is thrown away, as of a closed connection.
    """

    def __init__(
        self,
        site: Place,
        agent: WorkerAgent,
        report: UnitReport,
        unit: ReportServer,
        region: int,
        backoff: Backoff,
        *,
        plans_change: bool = False,
    ) -> None:
        """`plans_change`: a refusal is no error of the simulation's."""
        self.report = report
        self.region = region
        self.attempt = 0
        """The present one."""
        self.is_open = False
        """Opened, as far as the agent knows."""
        self._site = site
        self._agent = agent
        self._unit = unit
        self._backoff = backoff
        self._plans_change = plans_change
        self._renewing = False
        self._renewal_timer = 0
        """The one that counts."""
        self._unvouched = False
        """To be opened as soon as the agent vouches for its worker."""

    @property
    def far_end(self) -> Action:
        """What tells the unit that an attempt of this stream has ended."""
        return self._unit.agent_hung_up

    def start(self) -> None:
        """Register when the run begins, with no way between: the fleet has long been up."""
        self.is_open = True
        self._site.begin(self._unit.region, self._register, self.report.connect())

    def _register(self, hello: AgentHello) -> None:
        welcome = self._unit.register(self, self.attempt, hello)
        self._site.begin(self.region, self.answered, self.attempt, welcome)

    def dial(self) -> None:
        """Open the stream, once the agent vouches for its worker; when that cannot be, try again later."""
        self._unvouched = not self._agent.vouches
        if self._unvouched:
            return
        hello = self.report.connect()
        self.is_open = True
        if self._send(sizes.agent_to_unit(hello), self._unit.dialled, hello):
            self._site.after(ANSWER_US, self._unanswered, self.attempt)
        else:
            self._broken()

    def wake(self) -> None:
        """Send what there is to send. Opens the stream anew when the agent has begun another epoch."""
        if self._unvouched:
            self.dial()
        elif self.report.outdated:
            self._ended()
            self.dial()
        take, unit = self.report.take, self._unit
        while (message := take()) is not None:
            if not self._send(sizes.agent_to_unit(message), unit.reported, message):
                self._broken()
                return

    def hung_up(self, attempt: int) -> None:
        """The connection broke."""
        if self.is_open and attempt == self.attempt:
            self._broken()

    def answered(self, attempt: int, message: UnitToAgent) -> None:
        """The unit says something."""
        if attempt != self.attempt:
            return
        if isinstance(message, Refusal):
            self._refused(message)
            return
        at_us = self.report.renewal_at_us
        self.report.on_message(message)
        self._renew_sooner(at_us)
        if self.report.welcomed and not self._renewing:
            self._renewing = True
            self._renew(attempt, self._renewal_timer)
        else:
            self.wake()

    def apply_plan(self, plan: Plan) -> None:
        """Go by the next version of the plan; what is due earlier by it is done then."""
        at_us = self.report.renewal_at_us
        self.report.apply_plan(plan.plan_version, plan.routing.lease_ms)
        self._renew_sooner(at_us)

    def _refused(self, refusal: Refusal) -> None:
        """Wait for another plan, where there may be one; of a stream alone, open another."""
        if refusal.field != STREAM_FIELD and not self._plans_change:
            raise SimulationError(f"a unit refuses its agent: {refusal.message}", field=refusal.field)
        self._ended()
        self._site.after(self._backoff.next_us(refused_us(refusal.field)), self.dial)

    def _renew(self, attempt: int, timer: int) -> None:
        if attempt == self.attempt and timer == self._renewal_timer:
            now_us = self._site.now_us
            self.report.tend_lease(now_us, renewable=self._agent.may_renew(now_us))
            self._renew_later()
            self.wake()

    def _renew_sooner(self, than_us: int) -> None:
        """Renewals may have become due earlier."""
        if self._renewing and self.report.renewal_at_us < than_us:
            self._renewal_timer += 1
            self._renew_later()

    def _renew_later(self) -> None:
        delay_us = max(0, self.report.renewal_at_us - self._site.now_us)
        self._site.after(delay_us, self._renew, self.attempt, self._renewal_timer)

    def _send(self, size: int, action: Action, message: AgentToUnit) -> bool:
        return self._site.send_reliably(self._unit.region, action, size, (self, self.attempt, message))

    def _unanswered(self, attempt: int) -> None:
        if attempt == self.attempt and not self.report.welcomed:
            self._broken()

    def _ended(self) -> None:
        """Close the present attempt, and let the unit know."""
        self._site.send_reliably(self._unit.region, self.far_end, 0, (self, self.attempt))
        self.report.disconnected()
        self.is_open = False
        self.attempt += 1
        self._renewing = False

    def _broken(self) -> None:
        if self.report.welcomed:
            self._backoff.reset()
        self._ended()
        self._site.after(self._backoff.next_us(), self.dial)
