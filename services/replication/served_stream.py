"""The server's side of a Subscribe stream, of a unit or an edge: what its role says is sent as it comes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kvcompass.errors import ProtocolError, excerpt
from kvcompass.roles.desk_bounds import DeskCounters
from kvcompass.roles.handshake import superseded
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
from services.runtime.conversation import (
    WRITE_TIMEOUT_S,
    Answers,
    first_message,
    say_who_is_replaced,
    while_it_lasts,
)
from services.runtime.logs import get_logger

_LEAST_WAIT_S: Final = 0.05
"""Between two looks at what time alone brings about."""

Write: TypeAlias = Callable[[UnitToEdge], Awaitable[None]]
"""Returns when the message has left for the subscriber, or there is room for it on the way."""


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
    answers = Answers(write, rules.write_timeout_s)
    request = await first_message(messages, rules.hello_timeout_s)
    if not isinstance(request, SubscribeRequest):
        fault = Refusal("subscribe", "a Subscribe stream begins with a subscribe request")
        await answers.say(request if isinstance(request, Refusal) else fault)
        return
    found = published(request)
    if isinstance(found, Refusal):
        await answers.say(found)
        return
    opened = found.publisher.subscribe(request, clock())
    if isinstance(opened, Refusal | Unavailable):
        if isinstance(opened, Refusal):
            edge = excerpt(request.handshake.component_id)
            log.warning("edge refused", edge=edge, field=opened.field, message=opened.message)
        await answers.say(opened)
        return
    log.info("edge subscribed", edge=opened.subscriber, shard=request.shard, replay_from=opened.cursor)
    say_who_is_replaced(opened.turn, "subscription")
    try:
        async with while_it_lasts(opened.turn):
            await _converse(found, opened, messages, answers, clock, rules)
        if opened.turn.is_over:
            await answers.say(superseded(opened.subscriber))
    except ProtocolError as error:
        log.warning("edge sent nonsense", edge=opened.subscriber, field=error.field, error=str(error))
        await answers.say(Refusal(error.field, str(error)))
    finally:
        found.publisher.unsubscribe(opened)
        log.info("edge unsubscribed", edge=opened.subscriber, shard=request.shard)


async def _converse(
    found: Published,
    opened: Subscription,
    messages: AsyncIterator[EdgeToUnit],
    answers: Answers[UnitToEdge],
    clock: Callable[[], int],
    rules: StreamRules,
) -> None:
    """Sends and hears. Whoever says no more is still sent to. Errors: ProtocolError when it says nonsense."""
    publishing = asyncio.create_task(_publish(found, opened, answers, clock, rules))
    hearing = asyncio.create_task(_acknowledge(found.publisher, opened, messages))
    try:
        await asyncio.wait((publishing, hearing), return_when=asyncio.FIRST_COMPLETED)
        if hearing.done():
            hearing.result()
        await publishing
    finally:
        publishing.cancel()
        hearing.cancel()
        await asyncio.gather(publishing, hearing, return_exceptions=True)


async def _publish(
    found: Published,
    opened: Subscription,
    answers: Answers[UnitToEdge],
    clock: Callable[[], int],
    rules: StreamRules,
) -> None:
    """Sends what there is, until the role ends the stream or its subscriber does not read."""
    while True:
        batch = found.publisher.take(opened, clock())
        for message in batch:
            if not rules.loses(message) and not await answers.say(message):
                found.publisher.counters.stalled += 1
                get_logger("subscriptions").warning("edge does not read", edge=opened.subscriber)
                return
            if isinstance(message, Unavailable | Refusal):
                return
        if not batch:
            await found.changed.wait(max(_LEAST_WAIT_S, (opened.watermark_due_us - clock()) / 1e6))
            await asyncio.sleep(rules.flush_s)


async def _acknowledge(
    publisher: Publisher, subscription: Subscription, messages: AsyncIterator[EdgeToUnit]
) -> None:
    async for message in messages:
        if isinstance(message, Acknowledgement):
            publisher.acknowledged(subscription, message)
