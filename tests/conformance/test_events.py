"""What an engine says of its cache: grammar, names, order, and that it is true."""

import time

import numpy as np
import pytest

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from services.worker_agent.event_decoder import EventDecoder
from tests.conformance.engine_under_test import EngineUnderTest, Event, held

pytestmark = pytest.mark.asyncio(loop_scope="session")

MEDIA = {"GPU", "CPU_PINNED", "DISK", "EXTERNAL"}
MAP_FORM_SINCE = (0, 5, 20)


async def test_batches_have_the_documented_frames_and_numbers_without_holes(engine: EngineUnderTest) -> None:
    for _ in range(3):
        ids = engine.prompt(2)
        await engine.generate(ids)
        await engine.hear_stored(ids)
    numbers = [batch.number for batch in engine.seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {batch.topic for batch in engine.seen} == {b"kv-events"}
    for batch in engine.seen:
        timestamp, events, *rank = batch.body
        assert abs(timestamp - time.time()) < 86_400
        assert events
        assert rank in ([], [None], [0])


async def test_events_have_the_documented_fields(engine: EngineUnderTest) -> None:
    ids = engine.prompt(3)
    await engine.generate(ids, tokens=2 * engine.page)
    events = await engine.hear_stored(ids)
    assert {event.is_map for event in events} == {engine.version >= MAP_FORM_SINCE}
    for event in events:
        assert event.kind == "BlockStored"
        assert event.medium in MEDIA
        assert event.fields["block_size"] == engine.page
        assert event.fields["lora_id"] is None
        assert len(event.fields["token_ids"]) == engine.page * len(event.hashes)
        assert all(type(name) is int and -(2**63) <= name < 2**63 for name in event.hashes)


async def test_stores_spell_the_prompt_and_name_their_parents(engine: EngineUnderTest) -> None:
    ids = engine.prompt(4, more=3)
    await engine.generate(ids)
    events = await engine.hear_stored(ids)
    blocks = [block for event in events if event.medium == "GPU" for block in event.blocks()]
    assert [token for *_, tokens in blocks for token in tokens] == ids[: 4 * engine.page]
    assert [parent for _, parent, _ in blocks] == [None, *[name for name, *_ in blocks[:-1]]]


async def test_names_depend_on_tokens_and_on_all_before_them_alone(engine: EngineUnderTest) -> None:
    def names(events: list[Event]) -> list[object]:
        return [name for event in events if event.medium == "GPU" for name, *_ in event.blocks()]

    ids, other = engine.prompt(3), engine.prompt(1)
    await engine.generate(ids)
    first = names(await engine.hear_stored(ids))
    await engine.empty()
    await engine.generate(ids)
    assert names(await engine.hear_stored(ids)) == first
    await engine.empty()
    moved = [*other, *ids]
    await engine.generate(moved)
    assert not set(names(await engine.hear_stored(moved))) & set(first)


async def test_what_is_held_is_not_stored_again(engine: EngineUnderTest) -> None:
    ids = engine.prompt(3)
    longer = [*ids, *engine.prompt(1)]
    await engine.generate(ids)
    before = len(await engine.hear_stored(ids))
    await engine.generate(ids)
    await engine.generate(longer)
    more = (await engine.hear_stored(longer))[before:]
    blocks = [block for event in more if event.medium == "GPU" for block in event.blocks()]
    (last,) = [event for event in engine.events()[:before] if event.medium == "GPU"][-1].blocks()[-1:]
    assert [(parent, list(tokens)) for _, parent, tokens in blocks] == [(last[0], longer[-engine.page :])]


async def test_generated_tokens_are_stored_but_for_the_last(engine: EngineUnderTest) -> None:
    ids = engine.prompt(2)
    answer = await engine.generate(ids, tokens=2 * engine.page + 1)
    whole = [*ids, *answer["output_ids"][:-1]]
    assert len(whole) == 4 * engine.page
    await engine.hear_stored(whole)
    await engine.settle()
    stored = sum(len(event.hashes) for event in engine.events() if event.medium == "GPU")
    assert stored == 4


async def test_a_flush_is_told_first_thing_and_means_everything(engine: EngineUnderTest) -> None:
    ids = engine.prompt(3)
    await engine.generate(ids)
    await engine.hear_stored(ids)
    await engine.until_idle()
    told = len(engine.seen)
    assert (await engine.client.post("/flush_cache")).status_code == 200
    await engine.hear(lambda events: any(event.kind == "AllBlocksCleared" for event in events))
    (cleared,) = engine.seen[told].events
    assert cleared.kind == "AllBlocksCleared"
    assert held(engine.events(), ids, engine.page) == 0
    assert await engine.cached(ids) == 0


async def test_room_is_made_by_removals_and_reuse_follows_what_was_told(engine: EngineUnderTest) -> None:
    capacity = (await engine.load())["max_total_num_tokens"]
    size = max(4, capacity // engine.page // 6)
    prompts = [engine.prompt(size) for _ in range(9)]
    for ids in prompts:
        await engine.generate(ids)
        await engine.hear_stored(ids)
    events = engine.events()
    removed = [event for event in events if event.kind == "BlockRemoved"]
    assert removed
    stored = {name for event in events if event.kind == "BlockStored" for name in event.hashes}
    assert {name for event in removed for name in event.hashes} <= stored
    ids = prompts[-1]
    whole = held(events, ids, engine.page)
    assert whole == size
    assert await engine.cached([*ids, *engine.prompt(0, 1)]) == whole * engine.page
    first = prompts[0]
    await engine.settle()
    left = held(engine.events(), first, engine.page)
    assert left < size
    assert await engine.cached([*first, *engine.prompt(0, 1)]) <= left * engine.page


async def test_of_one_prompt_a_batch_removes_parents_before_children(engine: EngineUnderTest) -> None:
    ids = engine.prompt(6)
    await engine.generate(ids)
    events = await engine.hear_stored(ids)
    names = [name for event in events if event.medium == "GPU" for name, *_ in event.blocks()]
    capacity = (await engine.load())["max_total_num_tokens"]
    size = max(4, capacity // engine.page // 6)
    for _ in range(7):
        other = engine.prompt(size)
        await engine.generate(other)
        await engine.hear_stored(other)
    evictions = [
        [name for event in batch.events if event.kind == "BlockRemoved" for name in event.hashes]
        for batch in engine.seen
    ]
    gone = [[names.index(name) for name in removed if name in names] for removed in evictions]
    assert any(gone), "the oldest prompt was not evicted"
    for places in gone:
        assert places == sorted(places)


async def test_an_agent_understands_every_event(engine: EngineUnderTest) -> None:
    ids = engine.prompt(5)
    await engine.generate(ids, tokens=engine.page)
    await engine.hear_stored(ids)
    decoder = EventDecoder()
    tokens: list[int] = []
    for batch in engine.seen:
        for event in decoder.decode(batch.payload):
            assert isinstance(event, BlockStored | BlockRemoved | AllBlocksCleared)
            if isinstance(event, BlockStored) and event.medium == "GPU":
                assert event.tokens.dtype == np.int32
                tokens += event.tokens.tolist()
    assert tokens[: len(ids)] == ids
    assert decoder.counters.malformed_events == decoder.counters.unknown_events == 0
