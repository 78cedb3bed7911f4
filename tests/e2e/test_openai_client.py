"""The official client works unmodified, and what is wrong is told in OpenAI's shape."""

from typing import Any

import openai
import pytest

from lab.fleet import Fleet
from lab.three_regions import MODEL
from tests.e2e.asking import BODY_LIMIT, HTTP

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MESSAGES: list[Any] = [{"role": "user", "content": "Name three rivers."}]
TOOL: Any = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


@pytest.fixture
def client(quick_lab: Fleet) -> Any:
    with openai.OpenAI(
        base_url=quick_lab.base_urls["eu"],
        api_key="any",
        max_retries=0,
        timeout=30.0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    ) as client:
        yield client


def test_a_chat_completion(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8)
    assert answer.choices[0].message.content
    assert answer.usage is not None and answer.usage.completion_tokens == 8


def test_a_streamed_chat_completion_says_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8)
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, stream=True)
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert all(chunk.usage is None for chunk in chunks), "usage that was not asked for"
    assert chunks[-1].choices[0].finish_reason == "length"


def test_usage_in_a_stream_when_asked_for(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        tools=[TOOL],
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    usage = list(stream)[-1].usage
    assert usage is not None and usage.completion_tokens == 8


def test_completions_of_text_and_of_token_ids(client: openai.OpenAI) -> None:
    text = client.completions.create(model=MODEL, prompt="Three rivers are", max_tokens=4)
    ids = client.completions.create(model=MODEL, prompt=[400, 401, 402], max_tokens=4)
    assert text.choices[0].text and ids.choices[0].text
    assert ids.usage is not None and ids.usage.prompt_tokens == 3


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_a_wrong_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/chat/completions", b"{", 400),
        ("/chat/completions", b"[]", 400),
        ("/chat/completions", b'{"model":"%s"}' % MODEL.encode(), 400),
        ("/chat/completions", b'{"model":"%s","messages":7}' % MODEL.encode(), 400),
        ("/completions", b'{"model":"%s","prompt":[1,"two"]}' % MODEL.encode(), 400),
        ("/chat/completions", b" " * (BODY_LIMIT + 1), 413),
        ("/no/such/route", b"{}", 404),
    ],
)
def test_what_is_wrong_is_told_in_openai_s_shape(
    quick_lab: Fleet, path: str, content: bytes, status: int
) -> None:
    headers = {"content-type": "application/json", "x-request-id": "mine-1"}
    answer = HTTP.post(quick_lab.base_urls["us"] + path, content=content, headers=headers)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"] == "mine-1"


def test_a_client_s_own_routing_headers_are_ignored(quick_lab: Fleet) -> None:
    answer = HTTP.post(
        f"{quick_lab.base_urls['us']}/chat/completions",
        json={"model": MODEL, "messages": MESSAGES, "max_tokens": 2},
        headers={"x-kvcompass-worker": "worker-asia-2", "x-kvcompass-origin": "asia"},
    )
    assert answer.headers["x-kvcompass-region"] == "us"
