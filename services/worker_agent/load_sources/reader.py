"""The load of one worker, from the best source that its engine has."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import zmq.asyncio

from kvcompass.roles.queue_estimate import EngineLoad
from services.runtime.logs import get_logger
from services.runtime.sparse_log import SparseLog
from services.worker_agent.engine_client import EngineClient, EngineError, MalformedError, NotThereError
from services.worker_agent.load_sources.get_load import GetLoad
from services.worker_agent.load_sources.load_socket import LoadSocket, Published, load_endpoint
from services.worker_agent.load_sources.metrics_page import MetricsPage
from services.worker_agent.load_sources.source import LoadSource, SourceKind
from services.worker_agent.load_sources.v1_loads import V1Loads
from services.worker_agent.settings import EngineSettings

_QUIET_MS = 3_000
"""Three heartbeats of SGLang's load publisher."""
_LOOK_AGAIN_US: Final = 60_000_000
"""After a better source than the one in use was not there, or made no sense."""


class Told(NamedTuple):
    """A load, and how fresh it is."""

    load: EngineLoad
    heard_us: int
    """When the engine told it."""
    answered_us: int
    """When the engine last answered a question: what publishes is not what answers requests."""


class LoadReader:
    """Asks for the sources in order of worth, takes the first that is there, and asks again when it is gone.

    The order: `/v1/loads`, and beside it what the engine publishes, where it does; `/get_load`; `/metrics`.
    Of an engine that publishes, the load last published counts as long as an answer is recent: `/v1/loads` is
    asked to know that the engine lives. While nothing comes, as from an engine that sleeps, it is asked each
    time. An engine that does not answer at all is no reason to choose. Better sources than the one taken are
    tried again each minute.
    """

    def __init__(
        self,
        client: EngineClient,
        context: zmq.asyncio.Context,
        *,
        worker_id: str,
        url: str,
        dial: Callable[[str], str],
        rank: int | None,
        settings: EngineSettings,
        now_us: Callable[[], int],
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: Of the engine.
            context: Of the sockets.
            worker_id: For the log.
            url: The engine's, as in the plan.
            dial: Where an address of the plan is really reached.
            rank: The data-parallel rank that the worker is; None: it is the whole engine.
            settings: The engine's.
            now_us: A monotonic clock.
        """
        self._client = client
        self._context = context
        self._url = url
        self._dial = dial
        self._rank = rank
        self._settings = settings
        self._v1_loads = V1Loads(rank, stalled_ms=settings.stalled_ms, now_us=now_us)
        self._now_us = now_us
        self._log = SparseLog(get_logger("load").bind(worker=worker_id), now_us)
        self._source: LoadSource | None = None
        self._better: list[LoadSource] = []
        self._look_again_at_us = 0
        self._answer: Told | None = None
        """The last one to a question; None where the last question failed."""
        self._asking: asyncio.Task[EngineLoad] | None = None
        """Beside what is published."""
        self._socket: LoadSocket | None = None
        self._malformed_before = 0
        self.kind: SourceKind | None = None
        """Where the last load came from; None before the first."""
        self.lacks: tuple[str, ...] = ()
        """What that source does not tell."""
        self.choices = 0
        """Times that another source was taken. Monotonic."""

    @property
    def malformed(self) -> int:
        """Published messages that were no load. Monotonic."""
        return self._malformed_before + (self._socket.malformed if self._socket is not None else 0)

    @property
    def publishes_at(self) -> str:
        """Where the engine says that it publishes its load; empty when it does not."""
        return "" if self._socket is None else self._socket.endpoint

    @property
    def period_ms(self) -> int:
        """Between two questions, from start to start."""
        if self._source is not None and self._source.is_page:
            return max(self._settings.load_period_ms, self._settings.metrics_period_ms)
        return self._settings.load_period_ms

    def reconsider(self) -> None:
        """The engine is another, or may be: choose anew at the next question."""
        self._source = None
        self._better = []
        self._answer = None
        self._stop_asking()
        self._close_socket()

    def close(self) -> None:
        """Stop listening."""
        self._stop_asking()
        self._close_socket()

    async def read(self, recent_us: int) -> Told:
        """The load now. `recent_us`: how old an answer may be. Errors: EngineError."""
        if self._better and self._now_us() >= self._look_again_at_us:
            await self._look_again()
        if self._source is not None:
            try:
                return await self._from(self._source, recent_us)
            except NotThereError as error:
                self._log.warning("the load's source is gone", source=self._source.kind, reason=str(error))
                self.reconsider()
        return await self._choose()

    async def _choose(self) -> Told:
        found: list[str] = []
        candidates = self._candidates()
        for place, source in enumerate(candidates):
            try:
                load = await source.read(self._client)
            except (NotThereError, MalformedError) as error:
                found.append(str(error))
                continue
            self._look_again_at_us = self._now_us() + _LOOK_AGAIN_US
            await self._take(source, candidates[:place])
            self._heard(source.kind, load)
            return self._answered(load)
        told = "; ".join(found)
        if self._settings.kind == "vllm":
            advice = 'it is no vLLM, or hides the page; of SGLang set engine.kind = "sglang"'
        else:
            advice = "SGLang before 0.5.10 needs --enable-metrics"
        raise EngineError(f"the engine tells no load ({told}): {advice}", field="load")

    async def _look_again(self) -> None:
        """A single answer that made no sense is no reason to stay with less until the engine is another."""
        self._look_again_at_us = self._now_us() + _LOOK_AGAIN_US
        for place, source in enumerate(self._better):
            try:
                await source.read(self._client)
            except (NotThereError, MalformedError):
                continue
            except EngineError:
                # It is not waited for a second time: the load of the source in use is late meanwhile.
                del self._better[place]
                return
            await self._take(source, self._better[:place])
            return

    async def _take(self, source: LoadSource, better: list[LoadSource]) -> None:
        self._source, self._better = source, better
        if source.kind is SourceKind.V1_LOADS:
            await self._listen()

    def _candidates(self) -> list[LoadSource]:
        page = MetricsPage(self._rank)
        if self._settings.kind == "vllm":
            return [page]
        return [self._v1_loads, GetLoad(self._rank), page]

    async def _listen(self) -> None:
        """Listen beside the questions where the engine publishes its load."""
        try:
            endpoint = await load_endpoint(self._client, self._url, self._rank)
            if endpoint is not None:
                self._socket = LoadSocket(self._context, self._dial(endpoint), self._now_us, _QUIET_MS)
        except EngineError as error:
            self._log.info("no published load", reason=str(error))

    async def _from(self, source: LoadSource, recent_us: int) -> Told:
        published = None if self._socket is None else self._socket.newest()
        if published is None:
            asked, self._asking = self._asking, None
            load = await (asked or source.read(self._client))
        else:
            answer = await self._beside(published, source, recent_us)
            if answer is None:
                return self._newer(published)
            load = answer
        quiet = self._socket is not None and self._socket.speaks
        self._heard(SourceKind.LOAD_SOCKET if quiet else source.kind, load)
        return self._answered(load)

    async def _beside(self, published: Published, source: LoadSource, recent_us: int) -> EngineLoad | None:
        """Ask where the last answer is not recent; None while none has come: what is published need not wait.

        After a question that failed it does: whoever counts failures is not told of anything between.
        """
        if self._answer is None:
            return await source.read(self._client)
        if self._now_us() - self._answer.answered_us < recent_us:
            return None
        self._asking = self._asking or asyncio.create_task(source.read(self._client), name="load")
        done, _ = await asyncio.wait((self._asking,), timeout=self._settings.load_period_ms / 2_000)
        if not done:
            return None
        asked, self._asking = self._asking, None
        try:
            return asked.result()
        except EngineError:
            self._answer = None
            raise

    def _newer(self, published: Published) -> Told:
        """What is published, unless the last answer came after it."""
        assert self._answer is not None, "nothing is taken without an answer before"
        newer = self._answer if self._answer.heard_us > published.heard_us else published
        self._heard(SourceKind.LOAD_SOCKET, newer.load)
        return Told(newer.load, newer.heard_us, self._answer.answered_us)

    def _answered(self, load: EngineLoad) -> Told:
        now_us = self._now_us()
        self._answer = Told(load, now_us, now_us)
        return self._answer

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
            self._asking.cancel()
            self._asking = None

    def _heard(self, kind: SourceKind, load: EngineLoad) -> None:
        self.lacks = load.lacks
        if kind is not self.kind:
            self.kind = kind
            self.choices += 1
            self._log.info("the load comes from", source=kind.value, lacks=list(self.lacks))

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._malformed_before += self._socket.malformed
            self._socket.close()
            self._socket = None
