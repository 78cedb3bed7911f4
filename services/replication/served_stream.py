"""The server's side of a Subscribe stream, of a unit or an edge: what its role says is sent as it comes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

from kvcompass.errors import ProtocolError
from kvcompass.roles.desk_bounds import DeskCounters
from kvcompass.roles.messages import (
    Acknowledgement,
    EdgeToUnit,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
)
from kvcompass.roles.subscription import Subscription
from services.replication.pulse import Pulse
from services.runtime.logs import get_logger

_LEAST_WAIT_S: Final = 0.05
"""Between two looks at what time alone brings about."""

WRITE_TIMEOUT_S: Final = 10.0
"""For one message, a chunk of 256 KiB at most: a link of 26 KB/s.

An edge gives up itself what says nothing for 3 s. One that has stopped reading, and whose gRPC goes on
answering for it, would keep the snapshot that it began with.
"""

Write: TypeAlias = Callable[[UnitToEdge], Awaitable[None]]
"""Returns when the message has left for the subscriber, or there is room for it on the way."""

_Message = TypeVar("_Message")


class Publisher(Protocol):
    """The role that serves a shard."""

    @property
    def counters(self) -> DeskCounters:
        """Counted into."""
        ...

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal | Unavailable:
        """Opens a stream, or says why not."""
        ...

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        """The next messages, a few at a time; empty when there are none. `Unavailable` ends the stream."""
        ...

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        """The subscriber has applied up to a sequence."""
        ...

    def unsubscribe(self, subscription: Subscription) -> None:
        """The stream has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Published:
    """A shard that is served."""

    publisher: Publisher
    changed: Pulse
    """Beats when there may be more to send."""


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How streams are served."""

    hello_timeout_s: float
    """For a stream's first message."""
    flush_s: float
    """Changes are collected for so long before they are sent."""
    loses: Callable[[UnitToEdge], bool] = lambda _message: False
    """Whether a message is lost on purpose."""
    write_timeout_s: float = WRITE_TIMEOUT_S
    """For a message to be taken; a subscriber that takes none for so long is ended."""


async def first_message(messages: AsyncIterator[_Message], timeout_s: float) -> _Message | Refusal:
    """The message that opens a stream, or the answer to what is none."""
    try:
        async with asyncio.timeout(timeout_s):
            return await anext(messages)
    except StopAsyncIteration:
        return Refusal("stream", "the stream ended before its first message")
    except TimeoutError:
        return Refusal("stream", f"no first message within {timeout_s} s")
    except ProtocolError as error:
        return Refusal(error.field, str(error))


async def serve_subscription(
    messages: AsyncIterator[EdgeToUnit],
    published: Callable[[SubscribeRequest], Published | Refusal],
    write: Write,
    clock: Callable[[], int],
    rules: StreamRules,
) -> None:
    """One Subscribe stream, from its request to its end. `published` finds what is asked for.

    Backpressure: a subscriber that does not read stays where it is in the role's log, and not for ever.
    """
    log = get_logger("subscriptions")
    request = await first_message(messages, rules.hello_timeout_s)
    if not isinstance(request, SubscribeRequest):
        fault = Refusal("subscribe", "a Subscribe stream begins with a subscribe request")
        await _in_time(write, request if isinstance(request, Refusal) else fault, rules)
        return
    subscriber = request.handshake.component_id
    found = published(request)
    if isinstance(found, Refusal):
        await _in_time(write, found, rules)
        return
    publisher = found.publisher
    opened = publisher.subscribe(request, clock())
    if isinstance(opened, Refusal | Unavailable):
        if isinstance(opened, Refusal):
            log.warning("edge refused", edge=subscriber, field=opened.field, message=opened.message)
        await _in_time(write, opened, rules)
        return
    log.info("edge subscribed", edge=subscriber, shard=request.shard, replay_from=opened.cursor)
    acknowledging = asyncio.create_task(_acknowledge(publisher, opened, messages))
    try:
        while True:
            batch = publisher.take(opened, clock())
            for message in batch:
                if not rules.loses(message) and not await _in_time(write, message, rules):
                    publisher.counters.stalled += 1
                    log.warning("edge does not read", edge=subscriber, shard=request.shard)
                    return
                if isinstance(message, Unavailable | Refusal):
                    return
            if not batch:
                await found.changed.wait(max(_LEAST_WAIT_S, (opened.watermark_due_us - clock()) / 1e6))
                await asyncio.sleep(rules.flush_s)
    finally:
        acknowledging.cancel()
        publisher.unsubscribe(opened)
        log.info("edge unsubscribed", edge=subscriber, shard=request.shard)


async def _in_time(write: Write, message: UnitToEdge, rules: StreamRules) -> bool:
    """Sends a message. False: it was not taken in time, and the stream is to be ended."""
    try:
        async with asyncio.timeout(rules.write_timeout_s):
            await write(message)
    except TimeoutError:
        return False
    return True


async def _acknowledge(
    publisher: Publisher, subscription: Subscription, messages: AsyncIterator[EdgeToUnit]
) -> None:
    try:
        async for message in messages:
            if isinstance(message, Acknowledgement):
                publisher.acknowledged(subscription, message)
    except ProtocolError as error:
        get_logger("subscriptions").warning(
            "edge sent nonsense", edge=subscription.subscriber, error=str(error)
        )
