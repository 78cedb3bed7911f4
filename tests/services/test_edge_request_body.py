"""What the edge reads of a body, what it changes, and how it says no."""

import tracemalloc
from math import inf

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge.requests.errors import ApiError
from services.edge.requests.request_body import Endpoint, guess_endpoint, parse_request

MODEL = "m"
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner),
    max_leaves=5,
)


def chat(**fields: object) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields})


def fault(endpoint: Endpoint, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_request(endpoint, body, MODEL)
    return caught.value


def test_a_body_that_needs_nothing_is_forwarded_as_it_came():
    odd = b'  {"model" : "m", "messages":[], "unknown": 1.0e2, "big": 123456789012345678}\n'
    request = parse_request(Endpoint.CHAT, odd, MODEL)
    assert request.body is odd
    assert not request.strip_usage


def test_a_stream_that_asks_for_usage_keeps_it():
    body = chat(stream=True, stream_options={"include_usage": True})
    request = parse_request(Endpoint.CHAT, body, MODEL)
    assert request.body is body
    assert not request.strip_usage


@given(st.dictionaries(st.text(min_size=1), values, max_size=4), st.sampled_from(["", " ", "\n\t "]))
def test_asking_for_usage_changes_nothing_else(extra: dict[str, object], space: str):
    fields = {
        key: value for key, value in extra.items() if key not in ("stream_options", "n", "best_of", "tools")
    }
    body = chat(**{**fields, "model": MODEL, "messages": [], "stream": True}) + space.encode()
    request = parse_request(Endpoint.CHAT, body, MODEL)
    assert request.strip_usage
    forwarded = orjson.loads(request.body)
    assert forwarded.pop("stream_options") == {"include_usage": True}
    assert forwarded == orjson.loads(body)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"chunk": 3}])
def test_stream_options_without_usage_are_completed(options: dict[str, object] | None):
    request = parse_request(Endpoint.CHAT, chat(stream=True, stream_options=options), MODEL)
    assert orjson.loads(request.body)["stream_options"] == {**(options or {}), "include_usage": True}
    assert request.strip_usage


def test_prompts_of_completions():
    def prompt(value: object):
        return parse_request(Endpoint.COMPLETIONS, orjson.dumps({"model": MODEL, "prompt": value}), MODEL)

    assert prompt("hi").text == "hi"
    assert prompt(["hi"]).text == "hi"
    for ids in ([1, 2, 3], [[1, 2, 3]]):
        tokens = prompt(ids).tokens
        assert tokens is not None
        assert tokens.dtype == np.int32
        assert tokens.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "value",
    [
        ["a", "b"],
        [[1], [2]],
        [],
        None,
        3,
        {},
        [1, "a"],
        [1.5],
        [-1],
        [2**31],
        [2**70],
        [[]],
        [True],
        [[1, [2]]],
    ],
)
def test_prompts_that_are_not_one_prompt_name_the_field(value: object):
    body = b'{"model":"m","prompt":1180591620717411303424}' if value == [2**70] else None
    error = fault(Endpoint.COMPLETIONS, body or orjson.dumps({"model": MODEL, "prompt": value}))
    assert error.status == 400
    assert error.param == "prompt"


def test_a_long_string_among_token_ids_costs_nothing():
    body = orjson.dumps({"model": MODEL, "prompt": [1] * 2_000 + ["a" * 1_000] + [True]})
    tracemalloc.start()
    try:
        error = fault(Endpoint.COMPLETIONS, body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert (error.status, error.param) == (400, "prompt")


def test_a_truth_value_is_no_token():
    assert fault(Endpoint.COMPLETIONS, b'{"model":"m","prompt":[5,true]}').param == "prompt"


def test_nesting_that_can_be_read_and_not_written_is_a_fault_of_the_body():
    deep = b"[" * 300 + b"]" * 300
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":null,"x":' + deep + b"}"
    assert fault(Endpoint.CHAT, body).status == 400


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"[]", 400, None),
        (b"\xff\xfe", 400, None),
        (b"{}", 400, "model"),
        (b'{"model":7}', 400, "model"),
        (b'{"model":"gpt-4"}', 404, "model"),
        (b'{"model":"m"}', 400, "messages"),
        (chat(stream="yes"), 400, "stream"),
        (chat(stream=True, stream_options=3), 400, "stream_options"),
    ],
)
def test_faulty_bodies(body: bytes, status: int, param: str | None):
    error = fault(Endpoint.CHAT, body)
    assert (error.status, error.param) == (status, param)
    assert set(orjson.loads(error.body())["error"]) == {"message", "type", "param", "code"}


def test_what_the_engine_keeps_apart_has_no_keys():
    assert parse_request(Endpoint.CHAT, chat(), MODEL).keyed
    assert parse_request(Endpoint.CHAT, chat(cache_salt=None), MODEL).keyed
    for field in ("cache_salt", "extra_key", "lora_path"):
        assert not parse_request(Endpoint.CHAT, chat(**{field: "x"}), MODEL).keyed


def test_choices_and_endpoint():
    assert parse_request(Endpoint.CHAT, chat(n=3), MODEL).choices == 3
    assert guess_endpoint(chat()) is Endpoint.CHAT
    assert guess_endpoint(b'{"prompt":"x"}') is Endpoint.COMPLETIONS


@pytest.mark.parametrize(
    ("fields", "of_chat", "of_completion"),
    [
        ({}, inf, 16),
        ({"max_tokens": 7}, 7, 7),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9, 7),
        ({"max_tokens": 7, "max_completion_tokens": None}, 7, 7),
        ({"max_tokens": 7, "max_completion_tokens": 0}, 7, 7),
        ({"max_completion_tokens": 1}, 1, 16),
        ({"max_tokens": 0}, inf, 0),
        ({"max_tokens": -1}, inf, 16),
        ({"max_tokens": True}, inf, 16),
        ({"max_tokens": "7"}, inf, 16),
    ],
)
def test_the_longest_answer_is_what_the_engine_will_take_it_for(
    fields: dict[str, object], of_chat: float, of_completion: float
) -> None:
    assert parse_request(Endpoint.CHAT, chat(**fields), MODEL).answer_tokens == of_chat
    completion = orjson.dumps({"model": MODEL, "prompt": "x", **fields})
    assert parse_request(Endpoint.COMPLETIONS, completion, MODEL).answer_tokens == of_completion
