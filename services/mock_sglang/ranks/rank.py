"""One data-parallel rank: an engine with a cache of its own, and the sockets that it publishes on."""

import asyncio
import time

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, EvictionPolicy
from services.mock_sglang.errors import busy
from services.mock_sglang.events.endpoints import rank_endpoint
from services.mock_sglang.events.load_publisher import LoadPublisher
from services.mock_sglang.events.publisher import EventPublisher
from services.mock_sglang.faults import Faults, FaultSwitches
from services.mock_sglang.load_report import RankLoad
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.ranks.engine_loop import EngineLoop
from services.mock_sglang.settings import MockSettings


class Rank:
    """Owns its engine and its sockets. Errors at construction: SettingsError."""

    def __init__(self, settings: MockSettings, number: int, faults: FaultSwitches) -> None:
        self.number = number
        self._settings = settings
        self._profile = PROFILES[settings.event_profile]
        self._faults = faults
        self._report = self._profile.event_report()
        self.publisher: EventPublisher | None = None
        if settings.event_endpoint:
            self.publisher = EventPublisher(
                self._profile,
                rank_endpoint(settings.event_endpoint, number, "event_endpoint"),
                rank_endpoint(settings.replay_endpoint, number, "replay_endpoint"),
                settings.event_topic,
                settings.event_ring_batches,
                faults.delivery,
            )
        self.load_publisher: LoadPublisher | None = None
        if settings.load_publish_endpoint:
            endpoint = rank_endpoint(settings.load_publish_endpoint, number, "load_publish_endpoint")
            self.load_publisher = LoadPublisher(endpoint, self._told_load)
        self._eviction = EvictionPolicy(settings.radix_eviction_policy)
        self.engine = EngineLoop(
            self._new_engine(), self._publish, settings.time_scale, settings.stream_interval
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Serve replays and publish the load, until `close`."""
        if self.publisher is not None:
            self._tasks.append(asyncio.create_task(self.publisher.serve_replay(), name="replay"))
        if self.load_publisher is not None:
            self._tasks.append(asyncio.create_task(self.load_publisher.run(), name="load publisher"))

    async def close(self) -> None:
        """End its requests and close its sockets."""
        self.engine.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.publisher is not None:
            self.publisher.close()
        if self.load_publisher is not None:
            self.load_publisher.close()

    def load(self) -> RankLoad:
        """The load now."""
        settings, engine = self._settings, self.engine
        return RankLoad(
            self.number,
            engine.load(),
            settings.time_scale,
            settings.max_running_requests,
            engine.finished_requests,
        )

    def apply(self, faults: Faults) -> None:
        """Be as faulty as this from now on."""
        if faults.restart:
            self._restart()
        self.engine.set_slowdown(faults.slow)
        eviction = EvictionPolicy(faults.eviction_policy or self._settings.radix_eviction_policy)
        if eviction is not self._eviction:
            self._eviction = eviction
            self.engine.set_eviction(eviction)
        if self.publisher is not None:
            self.publisher.keep(faults.ring_batches or self._settings.event_ring_batches)
            self.publisher.pause_replay(faults.hang or faults.stick_events)
            self.publisher.stick(faults.stick_events)
        self.engine.stand_still(faults.hang)

    def _restart(self) -> None:
        self.engine.abort_all(busy("The engine restarts."))
        # What was published before comes first: batches are passed on by the event loop, in order.
        asyncio.get_running_loop().call_soon(self._forget)
        self._eviction = EvictionPolicy(self._settings.radix_eviction_policy)
        self.engine.replace(self._new_engine())

    def _forget(self) -> None:
        self._report = self._profile.event_report()
        if self.publisher is not None:
            self.publisher.restart()

    def _new_engine(self) -> Engine:
        return Engine(self._settings.engine_config())

    def _told_load(self) -> RankLoad | None:
        silent = self._faults.now.silence_load or self._faults.now.hang
        return None if silent else self.load()

    def _publish(self, batches: list[list[EngineEvent]]) -> None:
        # A decode engine has no prefix cache, hence nothing to tell.
        if self.publisher is None or self._settings.role == "decode":
            return
        for batch in batches:
            told = self._report.told(batch)
            self.publisher.publish(self._profile.encode_batch(told, time.time(), self.number))
