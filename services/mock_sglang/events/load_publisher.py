"""Publishes a rank's load over ZMQ, as SGLang 0.5.23 does with `--load-publish-endpoint`."""

import asyncio
from collections.abc import Callable

import msgspec
import zmq
import zmq.asyncio

from services.mock_sglang.load_report import RankLoad
from services.runtime.settings import SettingsError

TOPIC = b"load"
PERIOD_S = 0.05
"""A changed load is told within it. SGLang looks every few scheduler steps."""
HEARTBEAT_S = 1.0
"""An unchanged load is told again after it."""
HIGH_WATER_MARK = 8
"""As in SGLang: a load that is not read is superseded by the next."""


class LoadStat(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """`["LoadStat", running, waiting, tokens, max, rank, waiting_uncached, ...]`; counters are monotonic."""

    num_running_reqs: int
    num_waiting_reqs: int
    num_tokens: int
    max_total_num_tokens: int
    attn_dp_rank: int
    num_waiting_uncached_tokens: int
    num_total_tokens: int
    max_running_requests: int
    total_prefill_uncached_tokens: int
    total_prefill_busy_us: int


def load_stat(load: RankLoad) -> LoadStat:
    """What is told of a load."""
    model = load.model
    return LoadStat(
        num_running_reqs=model.running,
        num_waiting_reqs=model.waiting,
        num_tokens=model.used_tokens,
        max_total_num_tokens=model.capacity_tokens,
        attn_dp_rank=load.dp_rank,
        num_waiting_uncached_tokens=model.waiting_uncached_tokens,
        num_total_tokens=model.used_tokens + model.waiting_tokens,
        max_running_requests=load.max_running_requests,
        total_prefill_uncached_tokens=model.prefilled_tokens,
        total_prefill_busy_us=load.prefill_busy_us,
    )


class LoadPublisher:
    """PUB frames `[b"load", seq, payload]`. `load` is asked for what is told; None tells nothing."""

    def __init__(self, endpoint: str, load: Callable[[], RankLoad | None]) -> None:
        self._load = load
        self._encoder = msgspec.msgpack.Encoder()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set_hwm(HIGH_WATER_MARK)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            message = f"cannot listen on {endpoint}: {error}"
            raise SettingsError(message, field="load_publish_endpoint") from error
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.sequence = 0
        """Loads published so far."""

    async def run(self) -> None:
        """Publish until cancelled."""
        told: LoadStat | None = None
        silent_s = 0.0
        while True:
            load = self._load()
            stat = None if load is None else load_stat(load)
            if stat is not None and (stat != told or silent_s >= HEARTBEAT_S):
                frames = (TOPIC, self.sequence.to_bytes(8, "big"), self._encoder.encode(stat))
                await self._socket.send_multipart(frames)
                self.sequence += 1
                told, silent_s = stat, 0.0
            await asyncio.sleep(PERIOD_S)
            silent_s += PERIOD_S

    def close(self) -> None:
        """Close the socket, dropping what is unsent."""
        self._context.destroy(linger=0)
