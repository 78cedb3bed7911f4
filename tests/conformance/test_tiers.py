"""What an engine with a host tier says of where its blocks are."""

import pytest

from tests.conformance.engine_under_test import EngineUnderTest, held

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOLD_SINCE = (0, 5, 11)
HOST = "CPU_PINNED"


async def fill(engine: EngineUnderTest, times: int) -> None:
    """Prefill prompts that nobody asks for again, which together fill the cache more than so many times."""
    capacity = (await engine.load())["max_total_num_tokens"]
    size = max(4, capacity // engine.page // 6)
    for _ in range(6 * times + 1):
        ids = engine.prompt(size)
        await engine.generate(ids)
        await engine.hear_stored(ids)


async def test_demoted_blocks_are_told_and_come_back(tiered: EngineUnderTest) -> None:
    ids = tiered.prompt(4, more=1)
    await tiered.generate(ids)
    await tiered.hear_stored(ids)
    await fill(tiered, times=1)
    events = (await tiered.settle()) and tiered.events()
    told = tiered.version >= TOLD_SINCE
    assert held(events, ids, tiered.page) == (0 if told else 4)
    assert held(events, ids, tiered.page, HOST) == (4 if told else 0)
    meta = (await tiered.generate(ids))["meta_info"]
    assert meta["cached_tokens"] == 4 * tiered.page
    assert meta["cached_tokens_details"]["host"] == 4 * tiered.page
    await tiered.hear_stored(ids)


async def test_what_leaves_the_host_is_gone(tiered: EngineUnderTest) -> None:
    ids = tiered.prompt(4, more=1)
    await tiered.generate(ids)
    await tiered.hear_stored(ids)
    await fill(tiered, times=4)
    events = (await tiered.settle()) and tiered.events()
    assert held(events, ids, tiered.page) == held(events, ids, tiered.page, HOST) == 0
    assert await tiered.cached(ids) == 0


async def test_copies_are_of_blocks_that_were_stored(tiered: EngineUnderTest) -> None:
    await fill(tiered, times=1)
    await tiered.settle()
    seen: set[object] = set()
    for event in tiered.events():
        if event.kind == "BlockStored" and event.medium == "GPU":
            seen.update(event.hashes)
        elif event.kind == "BlockStored":
            assert event.medium == HOST
            assert set(event.hashes) <= seen
    media = {event.medium for event in tiered.events()}
    assert media == ({"GPU", HOST} if tiered.version >= TOLD_SINCE else {"GPU"})
