"""What an engine can still say of the past."""

import pytest
import zmq

from tests.conformance.engine_under_test import EngineUnderTest

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_replay_gives_the_live_batches_again(engine: EngineUnderTest) -> None:
    for _ in range(3):
        ids = engine.prompt(2)
        await engine.generate(ids)
        await engine.hear_stored(ids)
    live = [(batch.number, batch.payload) for batch in await engine.settle()]
    again = [(batch.number, batch.payload) for batch in await engine.replay(live[0][0])]
    assert again == live
    later = [(batch.number, batch.payload) for batch in await engine.replay(live[1][0])]
    assert later == live[1:]


async def test_a_replay_of_what_is_not_there_yet_ends_at_once(engine: EngineUnderTest) -> None:
    assert await engine.replay(2**40) == []


async def test_a_replay_has_no_holes_and_begins_with_an_empty_cache(engine: EngineUnderTest) -> None:
    past = await engine.replay(0)
    numbers = [batch.number for batch in past]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if numbers[0] == 0:
        assert past[0].events[0].kind == "AllBlocksCleared"


async def test_a_malformed_question_harms_nobody(engine: EngineUnderTest) -> None:
    socket = engine.context.socket(zmq.DEALER)
    socket.connect(engine.replay_at)
    await socket.send_multipart([b"what"])
    socket.close(linger=200)
    assert await engine.replay(0)
