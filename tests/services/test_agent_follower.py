"""A worker agent on an engine that replays badly, restarts by number alone, or says late what it is."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved
from kvcompass.roles.agent_state import AgentState
from kvcompass.tier import Tier
from services.mock_sglang.events.publisher import EventPublisher
from services.mock_sglang.profiles.array_events import encode_batch
from services.runtime.epoch import now_us
from services.worker_agent import engine_inquiry
from tests.services.agent_doubles import BLOCK, ScriptedEngine, eventually, stored
from tests.services.test_agent_engine import PROMPT, Scene, scene

_Answer = Callable[[list[tuple[bytes, bytes]]], AsyncIterator[tuple[bytes, bytes]]]
"""What is replayed of the batches from the one asked for on."""


class OddEngine(ScriptedEngine):
    """One whose replays and `/server_info` go as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.on_info: Callable[[], Any] = lambda: None
        """Called when it is asked what it is; what it returns is waited for."""
        self.questions = 0

    @property
    def publisher(self) -> EventPublisher:
        assert self._publisher is not None
        return self._publisher

    async def _app(self, scope: MutableMapping[str, Any], _receive: Any, send: Any) -> None:
        if scope["path"] == "/server_info":
            self.questions += 1
            waited = self.on_info()
            if waited is not None:
                await waited
        await super()._app(scope, _receive, send)

    def send(self, number: int, *events: Any) -> None:
        """Publish under a number of the test's choice; no replay has it."""
        payload = encode_batch(events, 1.0, 0)
        self.publisher._publish_socket.send_multipart((b"kv-events", number.to_bytes(8, "big"), payload))

    def renumber(self) -> None:
        """Restart as seen by number alone: the connection stays."""
        self.publisher.restart()
        self.publish(AllBlocksCleared())

    def replay_by(self, answer: _Answer) -> None:
        """Answer replays so, without an end but `END`."""
        assert self._replay is not None
        self._replay.cancel()
        self._replay = asyncio.create_task(self._replay_oddly(answer))

    async def _replay_oddly(self, answer: _Answer) -> None:
        socket = self.publisher._replay_socket
        assert socket is not None
        while True:
            client, _, start = await socket.recv_multipart()
            asked = [batch for batch in self.publisher._ring if batch[0] >= start]
            async for number, payload in answer(asked):
                await socket.send_multipart((client, b"", number, payload))


END = (b"\xff" * 8, b"")


@asynccontextmanager
async def attached(engine: OddEngine, **options: Any) -> AsyncIterator[Scene]:
    """An agent that has attached to the engine with one prompt in its cache."""
    await engine.start()
    engine.publish(stored(PROMPT))
    async with scene(engine, **options) as ready:
        await ready.ready()
        await ready.holds(PROMPT)
        engine.publish(BlockRemoved((99,), "GPU"))
        await eventually(lambda: ready.agent.applied == 2, "heard live")
        yield ready


@pytest.fixture
async def at_work() -> AsyncIterator[Scene]:
    async with attached(OddEngine()) as ready:
        yield ready


def engine_of(at_work: Scene) -> OddEngine:
    assert isinstance(at_work.engine, OddEngine)
    return at_work.engine


async def test_a_replay_without_end_does_not_keep_live_events_from_being_read(at_work: Scene) -> None:
    async def trickle(_asked: Any) -> AsyncIterator[tuple[bytes, bytes]]:
        while True:
            yield (0).to_bytes(8, "big"), encode_batch((), 1.0, 0)
            await asyncio.sleep(0.05)

    engine = engine_of(at_work)
    engine.replay_by(trickle)
    failures = at_work.worker.follower.replay_failures
    engine.loads = {"num_running_reqs": 1, "num_waiting_reqs": 0}
    await asyncio.sleep(0.2)  # the stream is quiet, and a replay is asked for
    engine.publish(BlockRemoved((8,), "GPU"))
    await at_work.holds(PROMPT[: 7 * BLOCK])
    assert at_work.worker.follower.replay_failures > failures


async def test_a_replay_with_a_hole_is_asked_for_again(at_work: Scene) -> None:
    answers = 0

    async def holey(asked: list[tuple[bytes, bytes]]) -> AsyncIterator[tuple[bytes, bytes]]:
        nonlocal answers
        answers += 1
        for place, batch in enumerate(asked):
            if place != 1 or answers > 1:
                yield batch
        yield END

    engine = engine_of(at_work)
    engine.replay_by(holey)
    for block in (8, 7, 6):
        engine.skip(BlockRemoved((block,), "GPU"))
    engine.publish(BlockRemoved((5,), "GPU"))
    await at_work.holds(PROMPT[: 4 * BLOCK])
    assert (at_work.agent.state, at_work.agent.lost_batches) == (AgentState.EXACT, 0)


async def test_a_restart_seen_by_number_withdraws_before_the_engine_is_asked_what_it_is(
    at_work: Scene,
) -> None:
    engine, held, never = engine_of(at_work), list[int](), asyncio.Event()

    def asked() -> Any:
        held.append(len(at_work.agent.holdings))
        return never.wait()

    engine.on_info = asked
    engine.renumber()
    await eventually(lambda: bool(held), "asked")
    assert held[0] == 0
    await at_work.holds()
    never.set()
    await eventually(lambda: at_work.agent.state is AgentState.EXACT, "attached again")
    assert at_work.agent.engine_restarts == 1


async def test_a_restart_seen_by_number_is_judged_by_what_the_new_process_is(at_work: Scene) -> None:
    engine = engine_of(at_work)
    engine.info = {"version": "0.5.10", "page_size": 3}
    engine.renumber()
    await eventually(lambda: at_work.agent.state is AgentState.REFUSED, "refused")


async def test_an_engine_that_did_not_say_what_it_is_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_inquiry, "_PERIOD_S", 0.05)
    engine = OddEngine()
    engine.info = None
    async with attached(engine) as unknown:
        assert unknown.worker.follower.inquiry.problem
        engine.info = {"version": "0.5.10", "page_size": 3}
        await eventually(lambda: unknown.agent.state is AgentState.REFUSED, "refused")
        await unknown.holds()


async def test_what_was_learned_by_other_rules_than_the_facts_tell_is_learned_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_inquiry, "_PERIOD_S", 0.05)
    engine = OddEngine()
    engine.info = None
    async with attached(engine) as unknown:
        assert set(unknown.unit.held.values()) == {int(Tier.VRAM)}
        engine.info = {"version": "0.5.10", "page_size": BLOCK, "enable_hierarchical_cache": True}
        await eventually(lambda: set(unknown.unit.held.values()) == {int(Tier.DRAM)}, "all may be in DRAM")
        await unknown.holds(PROMPT)
        await eventually(lambda: unknown.agent.state is AgentState.EXACT, "attached again")
        assert unknown.agent.engine_restarts == 0
        questions = engine.questions
        await asyncio.sleep(0.3)
        assert engine.questions == questions, "it has said"


async def test_what_an_engine_said_is_void_once_it_does_not_say_it() -> None:
    engine = OddEngine()
    engine.info = {"version": "0.5.10", "page_size": 3}
    await engine.start()
    async with scene(engine) as refused:
        await eventually(lambda: refused.agent.state is AgentState.REFUSED, "refused")
        await engine.kill()
        await eventually(lambda: refused.agent.state is AgentState.UNREACHABLE, "gone")
        engine.info = None
        await engine.start()
        engine.publish(stored(PROMPT))
        await refused.holds(PROMPT)
        assert refused.agent.engine.facts is None


async def test_another_process_that_does_not_say_what_it_is_is_asked_again(
    at_work: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(at_work)
    engine.info = {"version": "0.5.11", "page_size": BLOCK}
    await at_work.engine.fall_silent()
    await eventually(lambda: at_work.agent.state is AgentState.UNREACHABLE, "gone")
    monkeypatch.setattr(engine_inquiry, "_PERIOD_S", 0.05)
    await at_work.engine.answer()
    await eventually(lambda: at_work.agent.state is AgentState.EXACT, "attached again")
    engine.publish(BlockRemoved((99,), "GPU"))
    await eventually(lambda: at_work.agent.applied == 3, "heard live")
    engine.info = None
    engine.renumber()
    await eventually(lambda: at_work.agent.engine.facts is None, "nothing is known of it")
    engine.info = {"version": "0.5.10", "page_size": 3}
    await eventually(lambda: at_work.agent.state is AgentState.REFUSED, "refused")


async def test_an_engine_that_is_only_slow_to_say_what_it_is_is_what_it_was(at_work: Scene) -> None:
    engine, never = engine_of(at_work), asyncio.Event()
    engine.on_info = never.wait
    before = engine.questions
    at_work.worker.follower.attach_anew()
    await eventually(lambda: engine.questions >= before + 3, "asked three times")
    await eventually(lambda: at_work.agent.state is AgentState.EXACT, "attached again")
    assert at_work.agent.engine.facts is not None
    assert at_work.worker.follower.inquiry.problem
    never.set()


async def test_numbers_that_go_to_and_fro_do_not_make_epochs_without_end(at_work: Scene) -> None:
    engine, epochs = engine_of(at_work), set[int]()
    for step in range(200):
        engine.send(100 if step % 2 else 50, AllBlocksCleared())
        await asyncio.sleep(0.005)
        epochs.add(at_work.agent.epoch)
    assert len(epochs) < 10
    await eventually(lambda: at_work.agent.engine_restarts > 0, "seen as a restart once")


async def test_a_number_that_no_engine_counts_up_to_is_not_counted_from(at_work: Scene) -> None:
    engine = engine_of(at_work)
    for number in (2**64 - 2, 2**64 - 2, 1 << 40):
        engine.send(number, BlockRemoved((8,), "GPU"))
        await eventually(lambda: "as no engine does" in at_work.worker.follower.problem, "detached")
        assert not at_work.agent.vouches
        await at_work.ready()
    orjson.dumps(at_work.process.ops._health().details)
    assert at_work.agent.lost_batches < 1 << 40


async def test_the_source_of_load_is_chosen_anew_for_another_process_and_when_it_is_gone(
    at_work: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, chosen = engine_of(at_work), list[AgentState]()
    reconsider = at_work.worker.loads.reconsider

    def noted() -> None:
        chosen.append(at_work.agent.state)
        reconsider()

    monkeypatch.setattr(at_work.worker.loads, "reconsider", noted)
    engine.renumber()
    await eventually(lambda: len(chosen) == 1, "chosen for another process")
    await eventually(lambda: at_work.agent.state is AgentState.EXACT, "attached again")
    await engine.fall_silent()
    await eventually(lambda: at_work.agent.state is AgentState.UNREACHABLE, "gone")
    assert len(chosen) == 2


async def test_events_that_wait_are_known_to_wait_until_the_last_is_read(
    at_work: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, agent, follower = engine_of(at_work), at_work.agent, at_work.worker.follower
    lags, decode = list[int](), follower.decoder.decode

    def slow(payload: bytes) -> Any:
        time.sleep(0.01)
        lags.append(agent.lag.us(now_us()))
        return decode(payload)

    monkeypatch.setattr(follower.decoder, "decode", slow)
    for _ in range(50):
        engine.publish(BlockRemoved((99,), "GPU"))
    await eventually(lambda: len(lags) >= 50 and agent.lag.us(now_us()) == 0, "all read")
    assert max(lags) >= 100_000, "of ten batches that were read after the first, at least"


async def test_events_are_taken_to_wait_while_a_replay_is(at_work: Scene) -> None:
    engine, agent = engine_of(at_work), at_work.agent
    await eventually(lambda: agent.lag.us(now_us()) == 0, "quiet")
    engine.publisher.pause_replay(True)
    await eventually(lambda: agent.lag.us(now_us()) > 100_000, "a replay is waited for")
    engine.publisher.pause_replay(False)
    await eventually(lambda: agent.lag.us(now_us()) == 0, "quiet again")
