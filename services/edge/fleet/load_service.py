"""Load in: agents of this region and edges of the others report to this edge."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kvcompass.errors import ProtocolError, excerpt
from kvcompass.fleet.load import LoadVerdict
from kvcompass.plan.model import Plan
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.handshake import check_handshake, superseded
from kvcompass.roles.messages import (
    STREAM_FIELD,
    Acknowledgement,
    AgentLoad,
    LoadReply,
    Refusal,
    RegionBroadcast,
)
from kvcompass.roles.turns import Turn, Turns
from services.edge.fleet.prefill_desk import Outbox, PrefillDesk
from services.edge.metrics import EdgeMetrics
from services.runtime.conversation import Answers, first_message, say_who_is_replaced, while_it_lasts
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger
from services.wire.rpc import Context

_FIRST_S = 5.0
"""For the first message of a stream: longer than any round trip, and nobody holds a stream for nothing."""

_NOT_EXPECTED: Final = (LoadVerdict.UNKNOWN_SENDER, LoadVerdict.WRONG_REGION)
"""Of senders, by the plan: they have no stream here."""

_Message = TypeVar("_Message", AgentLoad, RegionBroadcast)


@dataclass(frozen=True, slots=True)
class _Kind(Generic[_Message]):
    """What is particular to the messages of a stream."""

    source: str
    """Metric label."""
    sender: Callable[[_Message], str]
    number: Callable[[_Message], tuple[int, int]]
    """Epoch and sequence."""
    take: Callable[[_Message, int], LoadVerdict]
    field: str
    """Of the refusal of somebody who is not expected."""
    turns: Turns
    takes_prefills: Callable[[_Message], bool]
    """Of the first message."""


class LoadService:
    """`services.wire.rpc.LoadExchange`."""

    def __init__(
        self,
        plan: Plan,
        layout: Mapping[str, str],
        role: EdgeRole,
        metrics: EdgeMetrics,
        prefills: PrefillDesk,
    ) -> None:
        self._plan_version = plan.plan_version
        self._layout = layout
        self._metrics = metrics
        self._prefills = prefills
        self._role = role
        self._log = get_logger("load")
        self._agents: _Kind[AgentLoad] = _Kind(
            "agent",
            lambda message: message.load.worker_id,
            lambda message: (message.epoch, message.sequence),
            self._take_worker_load,
            "worker_id",
            Turns(),
            lambda message: message.takes_prefills,
        )
        self._edges: _Kind[RegionBroadcast] = _Kind(
            "broadcast",
            lambda message: message.load.edge_id,
            lambda message: (message.load.epoch, message.load.sequence),
            lambda message, now_us: role.on_region_load(
                message.load, now_us, opens=message.handshake is not None
            ),
            "edge_id",
            Turns(),
            lambda _: False,
        )

    def apply_plan(self, plan: Plan) -> None:
        """Handshakes may be one version away from this plan's."""
        self._plan_version = plan.plan_version

    async def report_load(self, messages: AsyncIterator[AgentLoad], context: Context) -> None:
        """One stream a worker."""
        await self._serve(messages, self._agents, Answers(context.write))

    async def exchange_load(self, messages: AsyncIterator[RegionBroadcast], context: Context) -> None:
        """One stream an edge of another region."""
        await self._serve(messages, self._edges, Answers(context.write))

    async def _serve(
        self, messages: AsyncIterator[_Message], kind: _Kind[_Message], answers: Answers[LoadReply]
    ) -> None:
        """Answers the first message; the others need no answer. Agents may be asked for replicas besides.

        A stream speaks for one process only. The newest stream of a sender is believed, and the one before
        is told so and ended: a sender that another has spoken for comes again, and is believed again.
        """
        first = await first_message(messages, _FIRST_S)
        if isinstance(first, Refusal):
            if first.field != STREAM_FIELD:
                self._note_malformed("unknown", kind.source, first)
            await answers.say(first)
            return
        refusal = self._refusal(first, kind)
        if refusal is not None:
            await answers.say(refusal)
            return
        epoch, sequence = kind.number(first)
        turn = kind.turns.take(kind.sender(first), epoch)
        if turn.instead_of is not None:
            self._metrics.superseded.labels(kind.source, turn.instead_of.value).inc()
        say_who_is_replaced(turn, f"load of {kind.source}")
        try:
            with self._prefills.stream(turn.sender, takes_prefills=kind.takes_prefills(first)) as outbox:
                async with while_it_lasts(turn):
                    if await answers.say(Acknowledgement(sequence)):
                        await self._converse(turn, messages, kind, answers, outbox)
                if turn.is_over:
                    await answers.say(superseded(turn.sender))
        except ProtocolError as error:
            refusal = Refusal(error.field, str(error))
            self._note_malformed(turn.sender, kind.source, refusal)
            await answers.say(refusal)
        finally:
            kind.turns.give_up(turn)

    async def _converse(
        self,
        turn: Turn,
        messages: AsyncIterator[_Message],
        kind: _Kind[_Message],
        answers: Answers[LoadReply],
        outbox: Outbox,
    ) -> None:
        """Hears all that a stream says, and says what is asked for meanwhile. Errors: ProtocolError."""
        hearing = asyncio.create_task(self._hear(turn, messages, kind), name="load stream")
        hearing.add_done_callback(lambda _: outbox.close())
        try:
            async for asked in outbox.messages():
                if not await answers.say(asked):
                    return
            await hearing
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, turn: Turn, messages: AsyncIterator[_Message], kind: _Kind[_Message]) -> None:
        """Errors: ProtocolError when a message is none of the stream's own."""
        async for message in messages:
            epoch, _ = kind.number(message)
            if kind.sender(message) != turn.sender or epoch != turn.epoch:
                raise ProtocolError(f"load of {excerpt(kind.sender(message))} in epoch {epoch}", field="load")
            if self._take(message, kind) in _NOT_EXPECTED:
                raise ProtocolError(f"{turn.sender} has left the plan", field=kind.field)

    def _take_worker_load(self, message: AgentLoad, now_us: int) -> LoadVerdict:
        if message.prefill_answers:
            self._prefills.answered(message.prefill_answers)
        return self._role.on_worker_load(message, now_us)

    def _take(self, message: _Message, kind: _Kind[_Message]) -> LoadVerdict:
        verdict = kind.take(message, now_us())
        self._metrics.loads.labels(kind.source, verdict.value).inc()
        return verdict

    def _note_malformed(self, sender: str, source: str, refusal: Refusal) -> None:
        self._metrics.loads.labels(source, "malformed").inc()
        self._log.warning("bad load", sender=sender, field=refusal.field, error=refusal.message)

    def _refusal(self, first: _Message, kind: _Kind[_Message]) -> Refusal | None:
        """Takes a stream's first message in, unless the stream is not to be: then the refusal."""
        handshake, sender = first.handshake, kind.sender(first)
        if handshake is None:
            return Refusal("handshake", "the first message of a stream must carry the handshake")
        refusal = check_handshake(handshake, self._layout, self._plan_version)
        if refusal is None and handshake.component_id != sender:
            refusal = Refusal(
                "component_id", f"{handshake.component_id} says that it reports of {excerpt(sender)}"
            )
        if refusal is None and (verdict := self._take(first, kind)) in _NOT_EXPECTED:
            refusal = Refusal(
                kind.field,
                f"{sender} reports no load here by plan version {self._plan_version}"
                f" ({verdict.value.replace('_', ' ')}); add it to the plan, or correct its address",
            )
        if refusal is not None:
            self._log.error(
                "refused",
                peer=excerpt(handshake.component_id),
                field=refusal.field,
                message=refusal.message,
            )
        return refusal
