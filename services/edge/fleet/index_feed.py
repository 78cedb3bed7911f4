"""Feeds one shard of the edge's view from its maintenance unit, for as long as the edge lives."""

import asyncio
import random
from typing import Final, NoReturn

import grpc.aio

from kvcompass.errors import ProtocolError
from kvcompass.roles.index_follower import IndexFollower, Resubscribe, ResubscribeReason
from kvcompass.roles.messages import EdgeToUnit, PatchGroups, UnitToEdge
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.runtime.logs import get_logger
from services.wire import rpc

_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 2.0
"""A healed partition is noticed within this time."""

_Call = grpc.aio.StreamStreamCall[EdgeToUnit, UnitToEdge]

_log = get_logger("index_feed")


async def follow(
    shard: int, address: str, follower: IndexFollower, dialer: Dialer, jitter: random.Random
) -> NoReturn:
    """Keeps `follower` on the stream of the unit at a plan address until cancelled.

    Every wait has a bound: silence for longer than the follower's stale bound ends a stream, and so does a
    write that does not get through. A new stream follows after a jittered, capped delay.
    """
    assert follower.shard == shard
    delay_s = _FIRST_DELAY_S
    said: tuple[str, str] | None = None
    async with dialer.channel(address) as channel:
        while True:
            ended = await _one_stream(channel, follower)
            if follower.was_exact:
                delay_s, said = _FIRST_DELAY_S, None
            follower.stream_ended(ended.reason)
            why = (ended.reason.value, ended.detail)
            if why != said:  # once, not at every attempt
                said = why
                _log.warning("index stream ended", shard=shard, unit=address, reason=why[0], detail=why[1])
            await asyncio.sleep(delay_s * jitter.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)


async def _one_stream(channel: grpc.aio.Channel, follower: IndexFollower) -> Resubscribe:
    """Follows one stream to its end. Reading yields to the loop between messages: requests go on."""
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
                return Resubscribe(ResubscribeReason.LOST, "the unit ended the stream")
            ended = follower.on_message(message, now_us())
            if ended is not None:
                return ended
            if not isinstance(message, PatchGroups) and follower.applied_sequence != acknowledged:
                acknowledged = follower.applied_sequence
                async with asyncio.timeout(bound_s):
                    await call.write(follower.acknowledgement())
    except TimeoutError:
        return Resubscribe(ResubscribeReason.SILENCE, f"nothing for {bound_s} s")
    except ProtocolError as error:
        return Resubscribe(ResubscribeReason.BROKEN, str(error))
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
        return Resubscribe(ResubscribeReason.LOST, _why(error))
    finally:
        call.cancel()


def _why(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
