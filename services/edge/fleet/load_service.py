"""Load in: agents of this region and edges of the others report to this edge."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import LoadVerdict
from kvcompass.plan.model import Plan
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.handshake import check_handshake, superseded
from kvcompass.roles.messages import (
    STREAM_FIELD,
    Acknowledgement,
    AgentLoad,
    Handshake,
    LoadReply,
    Refusal,
    RegionBroadcast,
    ReplicaPrefill,
)
from services.edge.fleet.load_turns import LoadTurns, Turn
from services.edge.fleet.prefill_desk import Outbox, PrefillDesk
from services.edge.metrics import EdgeMetrics
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger
from services.wire.rpc import Context

_FIRST_S = 5.0
"""For the first message of a stream: longer than any round trip, and nobody holds a stream for nothing."""

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
    turns: LoadTurns
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
            LoadTurns(),
            lambda message: message.takes_prefills,
        )
        self._edges: _Kind[RegionBroadcast] = _Kind(
            "broadcast",
            lambda message: message.load.edge_id,
            lambda message: (message.load.epoch, message.load.sequence),
            lambda message, now_us: role.on_region_load(
                message.load, now_us, opens=message.handshake is not None
            ),
            LoadTurns(),
            lambda _: False,
        )

    def apply_plan(self, plan: Plan) -> None:
        """Handshakes may be one version away from this plan's."""
        self._plan_version = plan.plan_version

    async def report_load(
        self, messages: AsyncIterator[AgentLoad], context: Context
    ) -> AsyncIterator[LoadReply]:
        """One stream a worker."""
        async for reply in self._serve(messages, self._agents):
            yield reply

    async def exchange_load(
        self, messages: AsyncIterator[RegionBroadcast], context: Context
    ) -> AsyncIterator[LoadReply]:
        """One stream an edge of another region."""
        async for reply in self._serve(messages, self._edges):
            yield reply

    async def _serve(
        self, messages: AsyncIterator[_Message], kind: _Kind[_Message]
    ) -> AsyncIterator[LoadReply]:
        """Answers the first message; the others need no answer. Agents may be asked for replicas besides.

        A stream speaks for one process only. The newest stream of a sender is believed, and the one before
        is told so and ended: a sender that another has spoken for comes again, and is believed again.
        """
        sender = "unknown"
        try:
            async with asyncio.timeout(_FIRST_S):
                first = await anext(messages)
            sender = kind.sender(first)
            epoch, sequence = kind.number(first)
            refusal = self._refusal(first.handshake, sender)
            if refusal is not None:
                yield refusal
                return
            with (
                kind.turns.take(sender, epoch) as turn,
                self._prefills.stream(sender, takes_prefills=kind.takes_prefills(first)) as outbox,
            ):
                if turn.instead_of is not None:
                    self._superseding(sender, kind.source, another=turn.instead_of != epoch)
                self._take(first, kind)
                yield Acknowledgement(sequence)
                async for asked in self._asking(outbox, self._follow(messages, kind, sender, epoch, turn)):
                    yield asked
                if turn.is_over:
                    yield superseded(sender)
        except StopAsyncIteration:
            return
        except TimeoutError:
            yield Refusal(STREAM_FIELD, f"no first message within {_FIRST_S:g} s")
        except ProtocolError as error:
            self._metrics.loads.labels(kind.source, "malformed").inc()
            self._log.warning("bad load", sender=sender, field=error.field, error=str(error))
            yield Refusal(error.field, str(error))

    async def _follow(
        self, messages: AsyncIterator[_Message], kind: _Kind[_Message], sender: str, epoch: int, turn: Turn
    ) -> None:
        """Take in what a stream says until it ends or another has its turn. Errors: ProtocolError."""
        async with turn:
            async for message in messages:
                if kind.sender(message) != sender or kind.number(message)[0] != epoch:
                    raise ProtocolError(
                        f"load of {kind.sender(message)!r} in epoch {kind.number(message)[0]}", field="load"
                    )
                self._take(message, kind)

    async def _asking(
        self, outbox: Outbox, follow: Coroutine[None, None, None]
    ) -> AsyncIterator[ReplicaPrefill]:
        """What is asked for while `follow` runs; ends with it, and as it does."""
        following = asyncio.create_task(follow, name="load stream")
        following.add_done_callback(lambda _: outbox.close())
        try:
            async for asked in outbox.messages():
                yield asked
            await following
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def _take_worker_load(self, message: AgentLoad, now_us: int) -> LoadVerdict:
        if message.prefill_answers:
            self._prefills.answered(message.prefill_answers)
        return self._role.on_worker_load(message, now_us)

    def _take(self, message: _Message, kind: _Kind[_Message]) -> None:
        verdict = kind.take(message, now_us())
        self._metrics.loads.labels(kind.source, verdict.value).inc()

    def _superseding(self, sender: str, source: str, *, another: bool) -> None:
        """`another`: process than the one whose stream was open."""
        self._metrics.superseded.labels(source, "another" if another else "same").inc()
        if another:
            self._log.warning(
                "an open load stream was replaced by one of another process: two speak for one sender,"
                " or it was restarted",
                sender=sender,
                source=source,
            )

    def _refusal(self, handshake: Handshake | None, sender: str) -> Refusal | None:
        if handshake is None:
            return Refusal("handshake", "the first message of a stream must carry the handshake")
        refusal = check_handshake(handshake, self._layout, self._plan_version)
        if refusal is None and handshake.component_id != sender:
            refusal = Refusal("component_id", f"{handshake.component_id!r} reports the load of {sender!r}")
        if refusal is not None:
            self._log.error(
                "refused", peer=handshake.component_id, field=refusal.field, message=refusal.message
            )
        return refusal
