"""Feeds one shard of the edge's view from its unit or another edge, for as long as the edge lives."""

import asyncio
import random
from collections.abc import Callable
from typing import Final, NoReturn

import grpc
import grpc.aio

from kvcompass.errors import ProtocolError
from kvcompass.roles.index_follower import Resubscribe, ResubscribeReason
from kvcompass.roles.messages import (
    EdgeToUnit,
    PatchGroups,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
)
from kvcompass.roles.upstream_choice import Source, SourceKind, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.runtime.logs import get_logger
from services.wire import rpc

_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 2.0
"""A healed partition is noticed within this time."""
_PROBE_S: Final = 0.5
"""Between two looks whether another edge is to be asked."""
_COPYING_S: Final = 0.001
"""Between two looks whether a copy of the view is whole."""

_Call = grpc.aio.StreamStreamCall[EdgeToUnit, UnitToEdge]

_log = get_logger("index_feed")


class IndexFeed:
    """Keeps a shard on the stream that its choice says. Nobody else tells the relay what it follows."""

    def __init__(
        self,
        relay: ViewRelay,
        choice: UpstreamChoice,
        dialer: Dialer,
        jitter: random.Random,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when there may be something to pass on to whoever follows this edge."""
        self.relay = relay
        self.choice = choice
        self._follower = relay.follower
        self._dialer = dialer
        self._jitter = jitter
        self._on_change = on_change
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def run(self) -> NoReturn:
        """Follows until cancelled.

        Every wait has a bound: silence for longer than the follower's stale bound ends a stream, and so does
        a write that does not get through. A new stream follows after a jittered, capped delay.
        """
        delay_s = _FIRST_DELAY_S
        said: tuple[str, str, str] | None = None
        try:
            while True:
                source = self.choice.next(loaded=self._follower.loaded, now_us=now_us())
                await self._close_unused()
                self.relay.follows(an_edge=source.kind is SourceKind.EDGE)
                self._on_change()
                ended = await self._one_stream(self._channel(source))
                if self._follower.was_exact or source.kind is SourceKind.EDGE:
                    delay_s = _FIRST_DELAY_S
                if self._follower.was_exact:
                    said = None
                self._follower.stream_ended(ended.reason)
                self.choice.ended(ended.reason, loaded=self._follower.loaded, now_us=now_us())
                if ended.reason is ResubscribeReason.MOVED:
                    continue
                why = (source.id, ended.reason.value, ended.detail)
                if why != said:  # once, not at every attempt
                    said = why
                    _log.warning(
                        "index stream ended",
                        shard=self._follower.shard,
                        source=source.id,
                        reason=ended.reason.value,
                        detail=ended.detail,
                    )
                await asyncio.sleep(delay_s * self._jitter.uniform(0.5, 1.0))
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        finally:
            await self._close_all_but(set())

    async def _one_stream(self, channel: grpc.aio.Channel) -> Resubscribe:
        """Follows one stream until it ends, or until another edge has proved to be the one to follow."""
        if not self.choice.may_probe:
            return await self._read(channel)
        reading = asyncio.create_task(self._read(channel))
        probing = asyncio.create_task(self._probe())
        try:
            await asyncio.wait((reading, probing), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else probing.result()
        finally:
            reading.cancel()
            probing.cancel()
            await asyncio.gather(reading, probing, return_exceptions=True)

    async def _read(self, channel: grpc.aio.Channel) -> Resubscribe:
        """Reading yields to the loop between messages: requests go on."""
        follower, relay = self._follower, self.relay
        bound_s = follower.stale_after_us / 1e6
        call = rpc.subscribe(channel)()
        acknowledged = follower.applied_sequence
        try:
            async with asyncio.timeout(bound_s):
                await call.write(follower.subscribe_request())
            while True:
                async with asyncio.timeout(bound_s):
                    message = await rpc.read(call)
                if message is None:
                    return Resubscribe(ResubscribeReason.LOST, "the stream was ended at the other side")
                while relay.is_copying:  # noqa: ASYNC110
                    await asyncio.sleep(_COPYING_S)
                ended = relay.on_message(message, now_us())
                if ended is not None:
                    return ended
                self._on_change()
                if not self.choice.may_stay(loaded=follower.loaded):
                    return Resubscribe(ResubscribeReason.MOVED, "it is none to follow further")
                newest = relay.acknowledgement()
                if not isinstance(message, PatchGroups) and newest.sequence != acknowledged:
                    acknowledged = newest.sequence
                    async with asyncio.timeout(bound_s):
                        await call.write(newest)
        except TimeoutError:
            return Resubscribe(ResubscribeReason.SILENCE, f"nothing for {bound_s} s")
        except ProtocolError as error:
            return Resubscribe(ResubscribeReason.BROKEN, str(error))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            return Resubscribe(_reason(error), _why(error))
        finally:
            call.cancel()

    async def _probe(self) -> Resubscribe:
        """Asks other edges, each when it is due, until one serves; says why one does not when that is new."""
        said: dict[str, str] = {}
        while True:
            await asyncio.sleep(_PROBE_S * self._jitter.uniform(0.5, 1.0))
            await self._close_unused()
            source = self.choice.to_probe(now_us()) if self._follower.loaded else None
            if source is None:
                continue
            request = self._follower.resume_request()
            answer, why = await self._first_answer(self._channel(source), request)
            starved = self._follower.is_starved(now_us())
            if self.choice.probed(source, request, answer, now_us(), starved=starved):
                return Resubscribe(ResubscribeReason.MOVED, f"{source.id} serves")
            if said.get(source.id) != why:
                said[source.id] = why
                _log.info("edge does not serve", shard=self._follower.shard, source=source.id, detail=why)

    async def _first_answer(
        self, channel: grpc.aio.Channel, request: SubscribeRequest
    ) -> tuple[UnitToEdge | None, str]:
        """What a stream beside the present one begins with, and in words; it is ended then."""
        call = rpc.subscribe(channel)()
        try:
            async with asyncio.timeout(self._follower.stale_after_us / 1e6):
                await call.write(request)
                answer = await rpc.read(call)
                return answer, _in_words(answer)
        except TimeoutError:
            return None, "it says nothing"
        except (ProtocolError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            return None, _why(error)
        finally:
            call.cancel()

    def _channel(self, source: Source) -> grpc.aio.Channel:
        if source.address not in self._channels:
            self._channels[source.address] = self._dialer.channel(source.address)
        return self._channels[source.address]

    async def _close_unused(self) -> None:
        """Edges that have left the plan are not dialled again; the present source is in use still."""
        choice = self.choice
        await self._close_all_but({each.address for each in (choice.unit, choice.source, *choice.edges)})

    async def _close_all_but(self, addresses: set[str]) -> None:
        for address in self._channels.keys() - addresses:
            await self._channels.pop(address).close()


def _reason(error: Exception) -> ResubscribeReason:
    """An edge of the version before answers UNIMPLEMENTED: it is well, and cannot serve."""
    unimplemented = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED
    return ResubscribeReason.UNAVAILABLE if unimplemented else ResubscribeReason.LOST


def _in_words(answer: UnitToEdge | None) -> str:
    match answer:
        case Refusal():
            return f"{answer.field}: {answer.message}"
        case Unavailable():
            return answer.reason.value
        case _:
            return f"it is elsewhere: {type(answer).__name__}"


def _why(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
