"""Publishes event batches over ZMQ and replays the recent ones on request."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import zmq
import zmq.asyncio

from services.mock_sglang.profiles.profile import Profile
from services.runtime.logs import get_logger
from services.runtime.settings import SettingsError

SEND_HIGH_WATER_MARK = 100_000
QUEUED_BATCHES = 100_000
"""Of a publisher that is stuck, `max_queue_size` of SGLang; there the engine waits when it is full, here the
oldest go.
"""


class Delivery(Enum):
    """What becomes of a batch. Its number is used up in any case."""

    SENT = "sent"
    UNSENT = "unsent"
    """Lost on the way: a replay has it."""
    FORGOTTEN = "forgotten"
    """Lost for good."""


def always_sent() -> Delivery:
    """The delivery of an engine without faults."""
    return Delivery.SENT


class EventPublisher:
    """PUB frames `[topic, seq, payload]`; a ROUTER answers as the profile frames it, then an end marker.

    `seq` counts batches from 0, 8 bytes big-endian. Both sockets are bound, whatever the endpoint's host
    (SGLang connects when the host is concrete). `delivery` is asked once a batch.
    """

    def __init__(
        self,
        profile: Profile,
        endpoint: str,
        replay_endpoint: str,
        topic: str,
        ring_batches: int,
        delivery: Callable[[], Delivery] = always_sent,
    ) -> None:
        self._log = get_logger("events")
        self._profile = profile
        self._topic = topic.encode()
        self._delivery = delivery
        self._ring: deque[tuple[bytes, bytes]] = deque(maxlen=ring_batches)
        self._stuck: deque[bytes] | None = None
        """Batches that wait; None while they are sent at once."""
        self._replaying = asyncio.Event()
        self._replaying.set()
        self.sequence = 0
        """Batches published so far."""
        self._context = zmq.asyncio.Context()
        self._publish_socket: Any = zmq.Context.shadow(self._context.underlying).socket(zmq.PUB)
        self._publish_socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER_MARK)
        self._replay_socket: zmq.asyncio.Socket | None = None
        self.replay_endpoint = ""
        try:
            self.endpoint = _bind(self._publish_socket, endpoint, "event_endpoint")
            if replay_endpoint:
                self._replay_socket = self._context.socket(zmq.ROUTER)
                # A replay of the whole ring must fit: a ROUTER drops what exceeds its mark, unseen.
                self._replay_socket.setsockopt(zmq.SNDHWM, ring_batches + 16)
                self.replay_endpoint = _bind(self._replay_socket, replay_endpoint, "replay_endpoint")
        except SettingsError:
            self.close()
            raise

    def publish(self, payload: bytes) -> None:
        """Send one batch to whoever is subscribed and keep it for replay. Never blocks."""
        if self._publish_socket.closed:
            return
        if self._stuck is not None:
            self._stuck.append(payload)
            return
        sequence = self.sequence.to_bytes(8, "big")
        self.sequence += 1
        delivery = self._delivery()
        if delivery is not Delivery.FORGOTTEN:
            self._ring.append((sequence, payload))
        if delivery is Delivery.SENT:
            self._publish_socket.send_multipart((self._topic, sequence, payload), zmq.NOBLOCK)

    def restart(self) -> None:
        """Number batches from 0 and forget those that were, as a new process does."""
        self.sequence = 0
        self._ring.clear()
        if self._stuck is not None:
            self._stuck.clear()

    def keep(self, ring_batches: int) -> None:
        """Keep so many batches for replay, at most as many as at the start; the oldest go."""
        self._ring = deque(self._ring, maxlen=ring_batches)

    def pause_replay(self, paused: bool) -> None:
        """Whether replay requests wait."""
        if paused:
            self._replaying.clear()
        else:
            self._replaying.set()

    def stick(self, stuck: bool) -> None:
        """Whether batches wait, which go out in order afterwards."""
        if stuck and self._stuck is None:
            self._stuck = deque(maxlen=QUEUED_BATCHES)
        elif not stuck and self._stuck is not None:
            waiting, self._stuck = self._stuck, None
            for payload in waiting:
                self.publish(payload)

    async def serve_replay(self) -> None:
        """Answer replay requests until cancelled."""
        if self._replay_socket is None:
            return
        while True:
            frames = await self._replay_socket.recv_multipart()
            await self._replaying.wait()
            if len(frames) != 3 or len(frames[2]) != 8:
                self._log.warning("malformed replay request", frames=len(frames))
                continue
            client, _, start = frames
            for sequence, payload in list(self._ring):
                if sequence >= start:
                    reply = self._profile.replayed(self._topic, sequence, payload)
                    await self._replay_socket.send_multipart((client, *reply))
            await self._replay_socket.send_multipart((client, *self._profile.replay_end))

    def close(self) -> None:
        """Close both sockets, dropping what is unsent."""
        self._publish_socket.close(linger=0)
        if self._replay_socket is not None:
            self._replay_socket.close(linger=0)
        self._context.destroy(linger=0)


def _bind(socket: Any, endpoint: str, field: str) -> str:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise SettingsError(f"cannot listen on {endpoint}: {error}", field=field) from error
    bound: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)
    return bound.rstrip(b"\0").decode()
