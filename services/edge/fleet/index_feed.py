"""Carries one shard's feed over gRPC: streams to its unit or another edge, for as long as the edge lives."""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import grpc
import grpc.aio

from kvcompass.errors import ProtocolError
from kvcompass.roles.messages import UnitToEdge
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import COPYING_US, ShardFeed
from kvcompass.roles.upstream_choice import Opening
from kvcompass.roles.upstream_probe import SILENT
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.runtime.logs import get_logger
from services.runtime.stream_end import reason_of
from services.wire import rpc

_ENDED: Final = "the stream was ended at the other side"

_log = get_logger("index_feed")


class IndexFeed:
    """Keeps a shard on the stream that its feed says. Nobody else tells the feed what became of it."""

    def __init__(self, feed: ShardFeed, dialer: Dialer, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when there may be something to pass on to whoever follows this edge."""
        self._feed = feed
        self._dialer = dialer
        self._on_change = on_change
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def run(self) -> NoReturn:
        """Follows until cancelled. Every wait has a bound."""
        feed = self._feed
        try:
            while True:
                opening = feed.open(now_us())
                self._on_change()
                await self._close_unused()
                why = await self._one_stream(opening)
                ended = feed.ended(why, now_us())
                if ended.is_news:
                    _log.warning(
                        "index stream ended",
                        shard=feed.follower.shard,
                        source=opening.source.id,
                        reason=why.reason.value,
                        detail=why.detail,
                    )
                if ended.pause_us:
                    await asyncio.sleep(ended.pause_us / 1e6)
        finally:
            await self._close_all_but(set())

    async def _one_stream(self, opening: Opening) -> Resubscribe:
        """Follows one stream until it ends, or until another edge has proved to be the one to follow."""
        if not self._feed.probe.is_of_use:
            return await self._read(opening)
        reading = asyncio.create_task(self._read(opening))
        asking = asyncio.create_task(self._ask_others())
        try:
            await asyncio.wait((reading, asking), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else asking.result()
        finally:
            reading.cancel()
            asking.cancel()
            await asyncio.gather(reading, asking, return_exceptions=True)

    async def _read(self, opening: Opening) -> Resubscribe:
        """Reading yields to the loop between messages: requests go on."""
        feed = self._feed
        call = rpc.subscribe(self._channel(opening))()
        try:
            async with self._unless_silent():
                await call.write(opening.request)
            while True:
                async with self._unless_silent():
                    message = await rpc.read(call)
                if message is None:
                    return Resubscribe(ResubscribeReason.LOST, _ENDED)
                while feed.relay.is_copying:  # noqa: ASYNC110
                    await asyncio.sleep(COPYING_US / 1e6)
                answer = feed.on_message(message, now_us())
                if isinstance(answer, Resubscribe):
                    return answer
                self._on_change()
                if answer is not None:
                    async with self._unless_silent():
                        await call.write(answer)
        except TimeoutError:
            return feed.silence()
        except ProtocolError as error:
            return Resubscribe(ResubscribeReason.BROKEN, str(error))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            return Resubscribe(_reason(error), reason_of(error))
        finally:
            call.cancel()

    def _unless_silent(self) -> asyncio.Timeout:
        return asyncio.timeout(max(0, self._feed.silent_at_us - now_us()) / 1e6)

    async def _ask_others(self) -> Resubscribe:
        """Asks other edges, each when it is due, until one serves."""
        probe = self._feed.probe
        while True:
            await asyncio.sleep(probe.pause_us() / 1e6)
            await self._close_unused()
            opening = probe.ask(now_us())
            if opening is None:
                continue
            outcome = probe.answered(await self._first_answer(opening), now_us())
            if isinstance(outcome, Resubscribe):
                return outcome
            if outcome.is_news:
                _log.info(
                    "edge does not serve",
                    shard=self._feed.follower.shard,
                    source=outcome.edge_id,
                    detail=outcome.why,
                )

    async def _first_answer(self, opening: Opening) -> UnitToEdge | str:
        """What a stream beside the present one begins with, or why with nothing; it is ended then."""
        call = rpc.subscribe(self._channel(opening))()
        try:
            async with asyncio.timeout(self._feed.probe.answer_within_us / 1e6):
                await call.write(opening.request)
                return await rpc.read(call) or _ENDED
        except TimeoutError:
            return SILENT
        except (ProtocolError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            return reason_of(error)
        finally:
            call.cancel()

    def _channel(self, opening: Opening) -> grpc.aio.Channel:
        address = opening.source.address
        if address not in self._channels:
            self._channels[address] = self._dialer.channel(address)
        return self._channels[address]

    async def _close_unused(self) -> None:
        """Edges that have left the plan are not dialled again; the present source is in use still."""
        choice = self._feed.choice
        await self._close_all_but({each.address for each in (choice.unit, choice.source, *choice.edges)})

    async def _close_all_but(self, addresses: set[str]) -> None:
        for address in self._channels.keys() - addresses:
            await self._channels.pop(address).close()


def _reason(error: Exception) -> ResubscribeReason:
    """An edge of the version before answers UNIMPLEMENTED: it is well, and cannot serve."""
    unimplemented = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED
    return ResubscribeReason.UNAVAILABLE if unimplemented else ResubscribeReason.LOST
