"""One engine, real or played: HTTP, live events, replays, and what its documented version promises."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import msgspec
import zmq
import zmq.asyncio

END = b"\xff" * 8
PATIENCE_S = 30.0
"""For anything that must happen; a real engine on a slow machine may take seconds."""

FLUSH_MS = 300
"""After so long without news of a flush it is tried again."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One message of the event stream."""

    number: int
    payload: bytes
    topic: bytes = b""

    @property
    def body(self) -> list[Any]:
        """`[ts, [event, ...], rank?]`."""
        body: list[Any] = msgspec.msgpack.decode(self.payload)
        return body

    @property
    def events(self) -> list["Event"]:
        """Its events, whatever their form."""
        return [Event.read(raw) for raw in self.body[1]]


_FIELDS = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
    ),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event, its fields by the names of the map form."""

    kind: str
    fields: dict[str, Any]
    is_map: bool

    @classmethod
    def read(cls, raw: Any) -> Self:
        """Accept what the documents say must be accepted: short arrays, more fields, unknown keys."""
        if isinstance(raw, dict):
            return cls(raw["type"], raw, True)
        kind, *values = raw
        return cls(kind, dict(zip(_FIELDS[kind], values, strict=False)), False)

    @property
    def medium(self) -> str:
        return str(self.fields.get("medium") or "GPU")

    @property
    def hashes(self) -> list[Any]:
        return list(self.fields.get("block_hashes", ()))

    def blocks(self) -> list[tuple[Any, Any, tuple[int, ...]]]:
        """Hash, parent's hash and tokens of every block of a store."""
        size, parent = self.fields["block_size"], self.fields["parent_block_hash"]
        blocks = []
        for i, name in enumerate(self.hashes):
            blocks.append((name, parent, tuple(self.fields["token_ids"][i * size : (i + 1) * size])))
            parent = name
        return blocks


@dataclass(slots=True)
class EngineUnderTest:
    """Attached to one engine. Tests run one at a time on it and begin with an empty cache."""

    client: httpx.AsyncClient
    events_at: str
    replay_at: str
    info: dict[str, Any]
    model: str
    vocabulary: int
    settled_ms: int
    """Silence after which it has said, while idle, what it had to say."""
    context: zmq.asyncio.Context
    seen: list[Batch] = field(default_factory=list)
    """Live batches since the last `empty`, in order of arrival."""
    _live: Any = None
    _random: random.Random = field(default_factory=random.Random)

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(part) for part in str(self.info["version"]).split(".")[:3] if part.isdigit())

    @property
    def page(self) -> int:
        return int(self.info["page_size"])

    @property
    def dp_size(self) -> int:
        return int(self.info.get("dp_size") or 1)

    def prompt(self, pages: int, more: int = 0) -> list[int]:
        """Token ids that nobody has used before: so many full pages and some tokens."""
        return [self._random.randrange(10, self.vocabulary) for _ in range(pages * self.page + more)]

    async def generate(self, ids: Sequence[int], tokens: int = 0, **fields: Any) -> dict[str, Any]:
        """/generate on rank 0, answered whole. With 0 tokens it is prefill only."""
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": list(ids), "sampling_params": sampling, **fields}
        if self.dp_size > 1:
            body.setdefault("routed_dp_rank", 0)
        response = await self.client.post("/generate", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def cached(self, ids: Sequence[int], **fields: Any) -> int:
        """How many tokens of a prompt the engine reuses now. Stores the prompt, too."""
        return int((await self.generate(ids, **fields))["meta_info"]["cached_tokens"])

    async def load(self) -> dict[str, Any]:
        """The load of rank 0."""
        response = await self.client.get("/v1/loads")
        assert response.status_code == 200, response.text
        first: dict[str, Any] = response.json()["loads"][0]
        return first

    async def until_idle(self) -> None:
        """Until nothing runs or waits."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                load = await self.load()
                if not load["num_running_reqs"] and not load["num_waiting_reqs"]:
                    return
                await asyncio.sleep(0.02)

    async def empty(self) -> None:
        """Flush the cache, wait until the engine has said so, and forget what it said before."""
        await self.until_idle()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                response = await self.client.post("/flush_cache")
                if response.status_code == 200 and await self._hear_flush():
                    break
            # A flush that was thought unheard may only be late.
            last = (await self.replay(self.seen[-1].number))[-1].number
            while self.seen[-1].number < last:
                await self._receive()
        await self.settle()
        last = max(i for i, batch in enumerate(self.seen) if batch.events[0].kind == "AllBlocksCleared")
        del self.seen[: last + 1]

    async def _hear_flush(self) -> bool:
        """A subscription takes effect some time after it is made, so the first flushes may go unheard."""
        heard = False
        while await self._live.poll(0 if heard else FLUSH_MS):
            batch = await self._receive()
            heard = heard or any(event.kind == "AllBlocksCleared" for event in batch.events)
        return heard

    async def settle(self) -> list[Batch]:
        """Take in what an idle engine still has to say; return all that it said since `empty`."""
        while await self._live.poll(self.settled_ms):
            await self._receive()
        return self.seen

    async def hear(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        """Take in live batches until their events are enough; return all events since `empty`."""
        async with asyncio.timeout(PATIENCE_S):
            while not enough(events := self.events()):
                await self._receive()
        return events

    async def hear_stored(self, ids: Sequence[int]) -> list[Event]:
        """Until every full page of a prompt was stored on the GPU."""
        pages = len(ids) // self.page
        return await self.hear(lambda events: held(events, ids, self.page) >= pages)

    def events(self) -> list[Event]:
        """All events since `empty`."""
        return [event for batch in self.seen for event in batch.events]

    async def _receive(self) -> Batch:
        topic, number, payload = await self._live.recv_multipart()
        assert len(number) == 8
        self.seen.append(Batch(int.from_bytes(number, "big"), payload, topic))
        return self.seen[-1]

    async def replay(self, start: int) -> list[Batch]:
        """What the engine still has from a number on."""
        socket = self.context.socket(zmq.DEALER)
        try:
            socket.connect(self.replay_at)
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            batches: list[Batch] = []
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frames = await socket.recv_multipart()
                    number, payload = frames[-2:]
                    if number == END:
                        assert payload == b""
                        return batches
                    batches.append(Batch(int.from_bytes(number, "big"), payload))
        finally:
            socket.close(linger=0)

    def listen(self) -> None:
        """Subscribe to the live events."""
        self._live = self.context.socket(zmq.SUB)
        self._live.setsockopt(zmq.SUBSCRIBE, b"")
        self._live.connect(self.events_at)


def held(events: Sequence[Event], ids: Sequence[int], page: int, medium: str = "GPU") -> int:
    """Full pages of a prompt that a history of events leaves in a medium, counted from the first on.

    Removals are by name and may repeat; equal tokens under several salts share names in some versions, so
    names are counted.
    """
    names: dict[tuple[Any, tuple[int, ...]], Any] = {}
    count: dict[Any, int] = {}
    for event in events:
        if event.kind == "AllBlocksCleared":
            names.clear()
            count.clear()
        elif event.medium == medium and event.kind == "BlockStored":
            for name, parent, tokens in event.blocks():
                names[parent, tokens] = name
                count[name] = count.get(name, 0) + 1
        elif event.medium == medium:
            for name in event.hashes:
                count[name] = max(0, count.get(name, 0) - 1)
    parent, pages = None, 0
    while (pages + 1) * page <= len(ids):
        name = names.get((parent, tuple(ids[pages * page : (pages + 1) * page])))
        if name is None or not count[name]:
            break
        parent, pages = name, pages + 1
    return pages


@asynccontextmanager
async def attach(
    base_url: str, events_at: str, replay_at: str, *, vocabulary: int, seed: int, settled_ms: int
) -> AsyncIterator[EngineUnderTest]:
    """An engine that runs and is idle. Endpoints are those of rank 0."""
    context = zmq.asyncio.Context()
    try:
        async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S, trust_env=False) as client:
            info = (await client.get("/server_info")).json()
            model = (await client.get("/v1/models")).json()["data"][0]["id"]
            engine = EngineUnderTest(
                client, events_at, replay_at, info, model, vocabulary, settled_ms, context
            )
            engine._random.seed(seed)
            engine.listen()
            yield engine
    finally:
        context.destroy(linger=0)
