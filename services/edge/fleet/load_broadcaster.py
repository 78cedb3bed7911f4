"""Load out: the region's queue vector, broadcast to the edges of other regions."""

import asyncio
from dataclasses import dataclass, field, replace

import grpc.aio

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import RegionLoad
from kvcompass.plan.model import Plan
from kvcompass.roles.backoff import refused_us
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.messages import Acknowledgement, Handshake, LoadReply, Refusal, RegionBroadcast
from services.edge.metrics import EdgeMetrics
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.runtime.logs import get_logger
from services.runtime.new_backoff import new_backoff
from services.runtime.stream_end import reason_of
from services.wire.rpc import exchange_load, read

_REPLY_S = 5.0
"""For the answer to a handshake."""
_WRITE_S = 2.0
"""For one message to be taken by the transport."""


_Call = grpc.aio.StreamStreamCall[RegionBroadcast, LoadReply]


@dataclass(slots=True)
class _Mailbox:
    """The newest vector for one peer: an older one that was not sent yet is worth nothing."""

    load: RegionLoad | None = None
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, load: RegionLoad) -> bool:
        """False when it replaced one that was not sent."""
        sent = self.load is None
        self.load = load
        self.filled.set()
        return sent

    async def take(self) -> RegionLoad:
        await self.filled.wait()
        self.filled.clear()
        load, self.load = self.load, None
        assert load is not None
        return load


class LoadBroadcaster:
    """One stream to each edge of another region."""

    def __init__(
        self,
        plan: Plan,
        region: str,
        role: EdgeRole,
        handshake: Handshake,
        dialer: Dialer,
        metrics: EdgeMetrics,
    ) -> None:
        self._region = region
        self._peers: dict[str, str] = {}
        self._mailboxes: dict[str, _Mailbox] = {}
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._peers_changed = asyncio.Event()
        self._role = role
        self._handshake = handshake
        self._dialer = dialer
        self._metrics = metrics
        self._log = get_logger("broadcast")
        self._lost: dict[str, str] = {}
        """Why a peer is not reached now: said once, not at every attempt."""
        self.apply_plan(plan)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for edge_id in self._peers:
                self._begin(group, edge_id)
            group.create_task(self._tick(), name="broadcast clock")

    def apply_plan(self, plan: Plan) -> None:
        """Keeps a stream to every edge of another region of this plan, and to no other."""
        self._handshake = replace(self._handshake, plan_version=plan.plan_version)
        self._peers = {edge.id: edge.grpc_address for edge in plan.edges if edge.region != self._region}
        self._mailboxes = {edge_id: self._mailboxes.get(edge_id) or _Mailbox() for edge_id in self._peers}
        self._lost = {edge_id: why for edge_id, why in self._lost.items() if edge_id in self._peers}
        self._peers_changed.set()
        if self._group is None:
            return
        for edge_id in self._streams.keys() - self._peers.keys():
            self._streams.pop(edge_id).cancel()
        for edge_id in self._peers.keys() - self._streams.keys():
            self._begin(self._group, edge_id)

    def _begin(self, group: asyncio.TaskGroup, edge_id: str) -> None:
        self._streams[edge_id] = group.create_task(self._follow(edge_id), name=f"broadcast to {edge_id}")

    async def _tick(self) -> None:
        while True:
            due_us = self._role.broadcasts.next_us
            if due_us is None:
                self._peers_changed.clear()
                await self._peers_changed.wait()
                continue
            await asyncio.sleep(max(0.001, (due_us - now_us()) / 1e6))
            due = self._role.broadcasts_due(now_us())
            if not due:
                continue
            load = self._role.region_load(now_us())
            for edge_id in due:
                use = "sent" if self._mailboxes[edge_id].put(load) else "superseded"
                self._metrics.loads.labels("own", use).inc()

    async def _follow(self, edge_id: str) -> None:
        backoff = new_backoff()
        async with self._dialer.channel(self._peers[edge_id]) as channel:
            while True:
                # A stream is open all the while, whether or not a broadcast is due: by it this edge learns
                # that another speaks in its name, and takes its turn back.
                self._mailboxes[edge_id].put(self._role.region_load(now_us()))
                try:
                    refusal = await self._stream(channel, edge_id)
                    reason = f"refused, {refusal.field}: {refusal.message}"
                    pause_us = backoff.next_us(least_us=refused_us(refusal.field))
                except (
                    grpc.aio.AioRpcError,
                    asyncio.InvalidStateError,
                    ProtocolError,
                    TimeoutError,
                ) as error:
                    if edge_id not in self._lost:
                        backoff.reset()
                    reason, pause_us = reason_of(error), backoff.next_us()
                if self._lost.get(edge_id) != reason:
                    self._lost[edge_id] = reason
                    self._log.warning("peer edge lost", peer=edge_id, reason=reason)
                await asyncio.sleep(pause_us / 1e6)

    async def _stream(self, channel: grpc.aio.Channel, edge_id: str) -> Refusal:
        """Sends what the mailbox gets. Returns when the peer refuses; raises when the stream breaks."""
        mailbox = self._mailboxes[edge_id]
        load = await mailbox.take()
        call = exchange_load(channel)()
        try:
            async with asyncio.timeout(_REPLY_S):
                await call.write(RegionBroadcast(self._handshake, load))
                reply = await read(call)
            if isinstance(reply, Refusal):
                return reply
            if not isinstance(reply, Acknowledgement):
                raise ProtocolError("the peer's first message is no acknowledgement", field="message")
            self._lost.pop(edge_id, None)
            self._log.info("peer edge reached", peer=edge_id)
            return await self._send_on(call, mailbox)
        finally:
            call.cancel()

    async def _send_on(self, call: _Call, mailbox: _Mailbox) -> Refusal:
        """Until the peer says that a newer stream has taken this one's place, or the stream breaks."""
        sending = asyncio.create_task(_send(call, mailbox), name="broadcasts")
        answering = asyncio.create_task(_answer(call), name="answers")
        try:
            await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            reply = await answering
        finally:
            sending.cancel()
            answering.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)
        if not isinstance(reply, Refusal):
            raise ProtocolError("the peer ended the stream", field="stream")
        return reply


async def _answer(call: _Call) -> LoadReply | None:
    reply = await read(call)
    return reply  # noqa: RET504 - what is returned would be taken for the type of the call's messages


async def _send(call: _Call, mailbox: _Mailbox) -> None:
    while True:
        load = await mailbox.take()
        async with asyncio.timeout(_WRITE_S):
            await call.write(RegionBroadcast(None, load))
