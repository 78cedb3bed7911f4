"""A subscriber that stops reading is ended, and what it held of a snapshot goes with it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.desk_bounds import DeskBounds, DeskCounters
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    EdgeToUnit,
    Handshake,
    SnapshotChunk,
    SubscribeRequest,
    UnitToEdge,
)
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.turns import Turns
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.unit_desk import UnitDesk
from services.replication.pulse import Pulse
from services.replication.served_stream import Published, StreamRules, serve_subscription
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.wire import rpc
from tests.models.replication_agent import edits_of
from tests.models.replication_fleet import replication_plan
from tests.models.replication_service import until
from tests.models.replication_table import DictTables

LAYOUT = layout_fields(replication_plan())
RULES = StreamRules(hello_timeout_s=1.0, flush_s=0.0, write_timeout_s=0.1)
STREAMS = 8


def request(edge: str) -> SubscribeRequest:
    return SubscribeRequest(Handshake(edge, 1, PROTOCOL_VERSION, 1, LAYOUT), 0, 0)


@dataclass
class ServedDesk:
    """A unit's desk as a stream's publisher, with a table that is many chunks."""

    counters: UnitCounters = field(default_factory=UnitCounters)

    def __post_init__(self) -> None:
        self.tables = DictTables(snapshot_parts=1)
        bounds = UnitBounds(log_groups=8, chunk_bytes=40)
        self.desk = UnitDesk(
            self.tables,
            epoch=1,
            layout=LAYOUT,
            plan_version=1,
            foreseen=(),
            bounds=bounds,
            counters=self.counters,
        )
        self.published = Published(self, Pulse())
        for key in range(20):
            self.edit(key)

    def edit(self, key: int) -> None:
        edits = edits_of(1, {key: 1 + self.tables.fields.get((key, 0, 0), 0) % 2})
        self.desk.tables_changed(self.tables.edit(edits.keys, 0, 0, edits.tiers))

    @property
    def copies(self) -> int:
        """Of the table, that somebody or the desk still holds."""
        held = [each.snapshot for each in self.desk._subscriptions] + [self.desk._snapshot]
        return len({id(snapshot) for snapshot in held if snapshot is not None})

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription:
        opened = self.desk.subscribe(request, now_us)
        assert isinstance(opened, Subscription)
        return opened

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        return self.desk.take(subscription, now_us)

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        self.desk.acknowledged(subscription, acknowledgement)

    def unsubscribe(self, subscription: Subscription) -> None:
        self.desk.unsubscribe(subscription)


async def requests(edge: str, stop: asyncio.Event) -> AsyncIterator[EdgeToUnit]:
    yield request(edge)
    await stop.wait()


async def test_streams_that_read_one_chunk_hold_no_copies_of_a_table_that_moves_on():
    served, stop = ServedDesk(), asyncio.Event()
    streams = []
    for number in range(STREAMS):
        taken: asyncio.Queue[UnitToEdge] = asyncio.Queue(maxsize=1)  # one chunk gets through, the next waits
        stream = serve_subscription(
            requests(f"edge-{number}", stop), lambda _: served.published, taken.put, now_us, RULES
        )
        streams.append(asyncio.create_task(stream))
        await until(taken.full)
        for key in range(16):  # the log turns over twice
            served.edit(key)
    assert served.copies > 2
    await asyncio.wait_for(asyncio.gather(*streams), 10)
    assert served.copies <= 1
    assert served.desk.lags() == {}
    assert served.counters.stalled == STREAMS


async def test_a_slow_subscriber_that_reads_on_gets_its_snapshot_whole():
    """Each message in half of the time that there is for it, and all together in many times that."""
    served, stop = ServedDesk(), asyncio.Event()
    chunks: list[SnapshotChunk] = []

    async def write(message: UnitToEdge) -> None:
        if isinstance(message, SnapshotChunk):
            await asyncio.sleep(RULES.write_timeout_s / 2)
            chunks.append(message)
            served.edit(len(chunks))

    stream = asyncio.create_task(
        serve_subscription(requests("edge-a", stop), lambda _: served.published, write, now_us, RULES)
    )
    await until(lambda: bool(chunks) and len(chunks) == chunks[0].chunks)
    assert len(chunks) > 4
    assert served.counters.stalled == 0
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    assert served.desk.lags() == {}


class Endless:
    """Publisher of one chunk after the other, as many as a transport takes."""

    def __init__(self) -> None:
        self.counters = DeskCounters()
        self.streams = 0

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription:
        self.streams += 1
        return Subscription(Turns().take(request.handshake.component_id, 1), cursor=None)

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        return [SnapshotChunk(1, 1, 0, 0, 1 << 20, bytes(DeskBounds().chunk_bytes))]

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        return

    def unsubscribe(self, subscription: Subscription) -> None:
        self.streams -= 1


@pytest.mark.parametrize("reads_on", [True, False])
async def test_a_subscriber_whose_grpc_answers_for_it_is_ended_all_the_same(reads_on):
    publisher = Endless()

    class Service:
        async def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: rpc.Context) -> None:
            await serve_subscription(
                messages, lambda _: Published(publisher, Pulse()), context.write, now_us, RULES
            )

    server, port = await serve_grpc(
        lambda server: rpc.register_view_subscriptions(server, Service()), "127.0.0.1:0"
    )
    async with Dialer({}).channel(f"127.0.0.1:{port}") as channel:
        call = rpc.subscribe(channel)()
        await call.write(request("edge-a"))
        assert isinstance(await rpc.read(call), SnapshotChunk)
        await until(lambda: publisher.streams == 0)
        assert publisher.counters.stalled == 1
        if reads_on:
            async with asyncio.timeout(10):
                while await rpc.read(call) is not None:
                    pass
        call.cancel()
    await server.stop(0)
