"""Laws of the prompt encoder: lossless text, prefix-stable chats, defused control tokens, named faults."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import services.prompt.encoder as encoder_module
from services.prompt import PromptEncoder, PromptError
from services.prompt.encoder import CONTROL_TOKENS, INLINE_CHARACTERS
from services.prompt.errors import PromptAssetError

ENCODER = PromptEncoder.load()


@given(st.text())
def test_plain_text_survives_encoding(text: str) -> None:
    if any(token in text for token in CONTROL_TOKENS):
        return
    tokens = ENCODER.encode(text)
    assert tokens.dtype == np.int32
    assert ENCODER.decode(tokens) == text


@given(st.text() | st.integers(1, 1_000).map(lambda n: " " * n) | st.sampled_from(CONTROL_TOKENS))
def test_no_token_holds_more_than_the_longest(text: str) -> None:
    assert len(ENCODER.encode(text)) * ENCODER.longest_token >= len(text)


@settings(max_examples=40)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=5), st.text(max_size=40))
def test_a_longer_conversation_extends_the_tokens_of_the_shorter(turns: list[str], answer: str) -> None:
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": t} for i, t in enumerate(turns)]
    asked = ENCODER.encode(ENCODER.render_chat(messages), rendered=True)
    later = [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
    followed = ENCODER.encode(ENCODER.render_chat(later), rendered=True)
    # Everything up to the newline that opens the answer is common: that newline may merge with the answer.
    assert followed[: len(asked) - 1].tolist() == asked[:-1].tolist()


@given(st.text(alphabet="<|>im_endstar of", max_size=60), st.sampled_from(CONTROL_TOKENS))
def test_a_clients_text_cannot_contain_control_tokens(text: str, control: str) -> None:
    ids = [ENCODER.token_id(token) for token in CONTROL_TOKENS]
    benign = ENCODER.encode(ENCODER.render_chat([{"role": "user", "content": "x"}]), rendered=True)
    hostile = ENCODER.encode(
        ENCODER.render_chat([{"role": "user", "content": text + control + text}]), rendered=True
    )
    assert np.isin(hostile, ids).sum() == np.isin(benign, ids).sum()


def test_tools_and_tool_turns_are_rendered_as_json() -> None:
    tools = [{"type": "function", "function": {"name": "lookup", "parameters": {"q": "<é>"}}}]
    call = {"id": "c", "type": "function", "function": {"name": "lookup", "arguments": '{"q": 1}'}}
    text = ENCODER.render_chat(
        [
            {"role": "user", "content": "Find it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "found", "tool_call_id": "c"},
        ],
        tools,
    )
    assert json.dumps(tools, ensure_ascii=False) in text
    assert '<tool_call>\n{"name": "lookup", "arguments": "{\\"q\\": 1}"}\n</tool_call>' in text
    assert text.endswith("<|im_start|>assistant\n")


def test_text_parts_read_like_one_string() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert ENCODER.render_chat([{"role": "user", "content": parts}]) == ENCODER.render_chat(
        [{"role": "user", "content": "one two"}]
    )


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ("hello", "messages"),
        ([], "messages"),
        (["hello"], "messages[0]"),
        ([{"role": "user", "content": "a"}, {"role": "king", "content": "b"}], "messages[1].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function.name"),
        ([{"role": "assistant", "tool_calls": 1}], "messages[0].tool_calls"),
    ],
)
def test_faults_are_named_by_their_path(messages: object, field: str) -> None:
    with pytest.raises(PromptError) as caught:
        ENCODER.render_chat(messages)
    assert caught.value.field == field


@pytest.mark.parametrize("tools", ["x", [1]])
def test_faulty_tools_are_refused(tools: object) -> None:
    with pytest.raises(PromptError):
        ENCODER.render_chat([{"role": "user", "content": "a"}], tools)


async def test_long_texts_encode_the_same_off_the_loop() -> None:
    text = "the quick brown fox " * (INLINE_CHARACTERS // 10)
    short, long = await asyncio.gather(ENCODER.encode_async("fox"), ENCODER.encode_async(text))
    assert short.tolist() == ENCODER.encode("fox").tolist()
    assert long.tolist() == ENCODER.encode(text).tolist()


def test_assets_can_be_files_beside_the_plan(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}!")
    encoder = PromptEncoder.load(chat_template="chat.jinja", base_dir=tmp_path)
    assert encoder.render_chat([{"role": "user", "content": "hi"}]) == "hi!"
    assert encoder.digest["tokenizer"] == ENCODER.digest["tokenizer"]
    assert encoder.digest["chat_template"] != ENCODER.digest["chat_template"]


@pytest.mark.parametrize(
    ("tokenizer", "template", "field"),
    [
        ("builtin:other", "builtin:kvcompass-chat", "model.tokenizer"),
        ("absent.json", "builtin:kvcompass-chat", "model.tokenizer"),
        ("broken.json", "builtin:kvcompass-chat", "model.tokenizer"),
        ("builtin:kvcompass-bpe", "broken.json", "model.chat_template"),
    ],
)
def test_unusable_assets_name_the_setting(tmp_path: Path, tokenizer: str, template: str, field: str) -> None:
    (tmp_path / "broken.json").write_text("{% if %}")
    with pytest.raises(PromptAssetError) as caught:
        PromptEncoder.load(tokenizer, template, tmp_path)
    assert caught.value.field == field


def test_a_template_that_refuses_is_the_clients_error(tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('no system turn') }}")
    encoder = PromptEncoder.load(chat_template="strict.jinja", base_dir=tmp_path)
    with pytest.raises(PromptError, match="no system turn"):
        encoder.render_chat([{"role": "user", "content": "a"}])


@pytest.mark.parametrize("begins", [True, False])
def test_a_template_writes_the_token_that_the_tokenizer_begins_with(tmp_path: Path, begins: bool) -> None:
    asset = json.loads(
        (Path(encoder_module.__file__).parent / "assets" / "tokenizer.json").read_text("utf-8")
    )
    mark = CONTROL_TOKENS[0]
    if begins:
        pieces = [{"SpecialToken": {"id": mark, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        asset["post_processor"] = {
            "type": "TemplateProcessing",
            "single": pieces,
            "pair": pieces,
            "special_tokens": {mark: {"id": mark, "ids": [0], "tokens": [mark]}},
        }
    (tmp_path / "tokenizer.json").write_text(json.dumps(asset))
    (tmp_path / "chat.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    encoder = PromptEncoder.load("tokenizer.json", "chat.jinja", tmp_path)
    tokens = encoder.encode(encoder.render_chat([{"role": "user", "content": "Hello"}]), rendered=True)
    assert tokens.tolist() == [*([0] if begins else []), *ENCODER.encode("Hello").tolist()]
    assert tokens.tolist() == encoder.encode("Hello").tolist(), "as a raw text is read"
