"""What an engine's texts cannot do: end the agent, hold it up, or say to people what they like."""

import re
from typing import Any

import msgspec
import orjson
import pytest

from kvcompass.engine_events import EventsLost
from services.worker_agent.engine_client import MalformedError
from services.worker_agent.engine_facts import sglang_facts, vllm_facts
from services.worker_agent.event_decoder import EventDecoder
from services.worker_agent.load_sources.exposition import LABEL, LINE_BYTES, Exposition

STORED: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": [1, 2],
}
STORED |= {"block_size": 2}


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("field", ["lora_id", "lora_name", "cache_salt"])
@pytest.mark.parametrize("value", [nested(5), nested(600), {"a": "b"}, 1.5, b"salt", True], ids=type)
def test_what_separates_blocks_is_a_name_or_a_number(field: str, value: Any) -> None:
    """Nested just below the decoder's own limit, its text is deeper than Python's stack."""
    decoder = EventDecoder()
    payload = msgspec.msgpack.encode([0.0, [STORED | {field: value}], 0])
    assert decoder.decode(payload) == [EventsLost(removals=False)]
    assert decoder.counters.malformed_events == 1


def test_a_number_names_an_adapter_and_no_salt() -> None:
    decoder = EventDecoder()
    (adapter,) = decoder.decode(msgspec.msgpack.encode([0.0, [STORED | {"lora_id": 7}], 0]))
    assert getattr(adapter, "scope", "") == "adapter:7\0"
    decoder.decode(msgspec.msgpack.encode([0.0, [STORED | {"cache_salt": 7}], 0]))
    assert decoder.counters.malformed_events == 1


def test_a_page_of_vllms_that_is_no_text_is_no_fact() -> None:
    with pytest.raises(MalformedError, match="no sample"):
        vllm_facts("0.19.1", b'vllm:cache_config_info{block_size="\xff"} 1.0\n')
    assert (
        vllm_facts("0.19.1", b'# HELP other \xff\nvllm:cache_config_info{block_size="16"} 1.0\n').page_size
        == 16
    )


def test_more_ranks_than_there_can_be_are_no_fact() -> None:
    with pytest.raises(MalformedError, match="ranks"):
        vllm_facts("0.19.1", b'vllm:cache_config_info{block_size="16"} 1.0\n' * 1_025)


@pytest.mark.parametrize(
    "labels",
    [b"a" * (LINE_BYTES + 1), b'a="' * LINE_BYTES, b'a="\\"' * LINE_BYTES, b"\\" * (LINE_BYTES + 1)],
    ids=len,
)
def test_a_line_longer_than_labels_are_is_malformed(labels: bytes) -> None:
    with pytest.raises(MalformedError, match="longer"):
        Exposition(["up"]).samples(b"up{" + labels + b"} 1\n")


@pytest.mark.parametrize("unit", ["a", 'a="', 'a="\\', "a=", '"', "\\", 'a="b",'])
def test_labels_are_tried_only_where_a_name_begins(unit: str) -> None:
    """A search that is tried anew inside of each name takes the square of its length."""
    assert all(LABEL.match('abc="x"', place) is None for place in (1, 2))
    labels = Exposition(["up"]).samples(f"up{{{unit * 200}}} 1\n".encode())[0].labels
    naive = dict(re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', unit * 200))
    assert labels == naive


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("0.5.10", "0.5.10"),
        ("0.5.10\x1b[31mhi\n", "0.5.10?[31mhi?"),
        ("9" * 5_000, "9" * 64),
        ("x" * 200_000, "x" * 64),
        (nested(3), ""),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_is_shown_to_people_is_short_and_printable(said: Any, shown: str) -> None:
    facts = sglang_facts(orjson.dumps({"version": said, "served_model_name": "m\x07"}))
    assert (facts.version, facts.model) == (shown, "m?")
    assert vllm_facts(said, b"").version == shown


@pytest.mark.parametrize(
    "mode", ["x" * 5_000, nested(600), 7, "null", None, "both"], ids=lambda v: str(v)[:9]
)
def test_a_part_that_is_not_known_is_none(mode: Any) -> None:
    assert sglang_facts(msgspec.json.encode({"disaggregation_mode": mode})).part == "both"


@pytest.mark.parametrize("half", ["prefill", "decode"])
def test_half_of_a_pair_is_told(half: str) -> None:
    assert sglang_facts(orjson.dumps({"disaggregation_mode": half})).part == half


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5557\x1b[2J", "tcp://*:5557\n", "tcp://" + "h" * 300 + ":1"], ids=len
)
def test_an_endpoint_is_short_and_printable_or_no_fact(endpoint: str) -> None:
    config = orjson.dumps({"publisher": "zmq", "endpoint": endpoint}).decode()
    with pytest.raises(MalformedError, match="endpoint"):
        sglang_facts(orjson.dumps({"kv_events_config": config}))
