"""Keys are those an engine's tokens give; what an engine keeps apart or the edge cannot know has none."""

import orjson
import pytest

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels.query_plan import query_plan
from services.edge.fleet.piggyback import pack_load, unpack_load
from services.edge.requests.errors import ApiError
from services.edge.requests.prompts import PromptReader, Unkeyed
from services.edge.requests.request_body import Endpoint, parse_request
from services.edge.requests.usage import ReuseReader
from services.prompt import PromptEncoder
from tests.models.routing_fleets import loads_of, make_plan, region_load

PLAN = make_plan(groups=("a", "b"))
RUNGS = query_plan(PLAN).rungs
ENCODER = PromptEncoder.load()
READER = PromptReader(ENCODER, PLAN, RUNGS)


def request(endpoint: Endpoint = Endpoint.COMPLETIONS, **fields: object):
    return parse_request(endpoint, orjson.dumps({"model": PLAN.model.id, **fields}), PLAN.model.id)


async def test_a_rung_as_long_as_the_prompt_has_no_key():
    rung = int(RUNGS[3])
    shorter = await READER.read(request(prompt=list(range(rung))), "a")
    longer = await READER.read(request(prompt=list(range(rung + 1))), "a")
    assert (shorter.tokens, len(shorter.keys)) == (rung, 3)
    assert (longer.tokens, len(longer.keys)) == (rung + 1, 4)
    assert shorter.keys.tolist() == longer.keys[:3].tolist()


async def test_text_and_chat_are_keyed_by_the_engines_tokens():
    text = "one two three " * 100
    tokens = ENCODER.encode(text)
    expected = prefix_keys(namespace(PLAN.model, "a"), tokens[:-1], RUNGS)
    assert (await READER.read(request(prompt=text), "a")).keys.tolist() == expected.tolist()
    messages = [{"role": "user", "content": text}]
    tokens = ENCODER.encode(ENCODER.render_chat(messages), rendered=True)
    expected = prefix_keys(namespace(PLAN.model, "a"), tokens[:-1], RUNGS)
    prompt = await READER.read(request(Endpoint.CHAT, messages=messages), "a")
    assert prompt.keys.tolist() == expected.tolist()


async def test_groups_never_share_a_key():
    one = await READER.read(request(prompt=list(range(2_000))), "a")
    other = await READER.read(request(prompt=list(range(2_000))), "b")
    assert len(one.keys) > 5
    assert not set(one.keys.tolist()) & set(other.keys.tolist())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"messages": [{"role": "user", "content": "x" * 4_000}], "cache_salt": "s"}, Unkeyed.OWN_CACHE),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
                ]
            },
            Unkeyed.NOT_TEXT,
        ),
    ],
)
async def test_what_cannot_be_known_has_no_keys(fields, why):
    prompt = await READER.read(request(Endpoint.CHAT, **fields), "a")
    assert prompt.unkeyed is why
    assert len(prompt.keys) == 0
    assert prompt.tokens >= 1


@pytest.mark.parametrize("messages", ["hi", [], [3], [{"role": "user"}], [{"role": "user", "content": 3}]])
async def test_faulty_messages_are_named(messages):
    with pytest.raises(ApiError) as caught:
        await READER.read(request(Endpoint.CHAT, messages=messages), "a")
    assert caught.value.status == 400
    assert (caught.value.param or "").startswith("messages")


@pytest.mark.parametrize("endpoint", list(Endpoint))
async def test_what_cannot_fit_the_context_is_not_tokenized(endpoint, monkeypatch):
    longest = PLAN.model.context_length * ENCODER.longest_token
    monkeypatch.setattr(PromptEncoder, "encode", lambda *_, **__: 1 / 0)
    text = "a" * (longest + 1)
    fields = (
        {"prompt": text}
        if endpoint is Endpoint.COMPLETIONS
        else {"messages": [{"role": "user", "content": text}]}
    )
    with pytest.raises(ApiError) as caught:
        await READER.read(request(endpoint, **fields), "a")
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    with pytest.raises(ZeroDivisionError):
        await READER.read(request(prompt=text[1:]), "a")


def usage(details: object) -> dict[str, object]:
    return {"prompt_tokens": 100, "prompt_tokens_details": details}


def test_null_means_nothing_only_from_who_has_reported():
    reader = ReuseReader()
    assert reader.cached_tokens("w", None, 1) is None
    assert reader.cached_tokens("w", usage(None), 1) is None
    assert reader.cached_tokens("w", usage({"cached_tokens": 64}), 1) == 64
    assert reader.cached_tokens("w", usage(None), 1) == 0
    assert reader.cached_tokens("other", usage(None), 1) is None


def test_several_choices_say_nothing_of_the_first():
    reader = ReuseReader()
    assert reader.cached_tokens("w", usage({"cached_tokens": 64}), 2) is None
    assert reader.cached_tokens("w", usage(None), 2) is None


def test_a_queue_vector_survives_its_header():
    load = WorkerLoad("eu-0", WorkerState.READY, 12.5, 1, 2, 3, 4, 0.25, 5)
    region = region_load("edge-eu", "eu", 7, 8, (load,))
    packed = pack_load(region)
    assert packed.isascii()
    unpacked = unpack_load(packed.decode())
    assert (unpacked.edge_id, unpacked.sequence, loads_of(unpacked)) == ("edge-eu", 8, (load,))


@pytest.mark.parametrize("value", ["%%%", "AAA", "////", "CgP/"])
def test_a_broken_queue_vector_is_refused(value):
    with pytest.raises(ProtocolError):
        unpack_load(value)
