"""Events pass byte for byte however they are cut; only the usage chunk that nobody asked for is taken out."""

import itertools

import orjson
from hypothesis import given
from hypothesis import strategies as st

from services.edge.requests.event_stream import EventStream

TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}\n\n'
TRICK = b'data: {"choices":[{"delta":{"content":"\\"usage\\":{ and \\n\\n"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}\n\n'
DONE = b"data: [DONE]\n\n"

events = st.lists(
    st.sampled_from([TOKEN, TRICK, b": comment\n\n", b"event: x\r\ndata: {}\r\n\r\n"]), max_size=6
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(events, events, st.lists(st.integers(min_value=0), max_size=40), st.booleans())
def test_any_cut_gives_the_same_bytes(
    before: list[bytes], after: list[bytes], places: list[int], strip: bool
):
    whole = b"".join([*before, USAGE, *after, DONE])
    stream = EventStream(strip_usage=strip)
    out = b"".join(stream.feed(piece) for piece in cut(whole, places)) + stream.close()
    assert out == b"".join([*before, *([] if strip else [USAGE]), *after, DONE])
    assert stream.usage == {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}


def test_one_byte_at_a_time():
    stream = EventStream(strip_usage=True)
    whole = TOKEN + USAGE + DONE
    assert b"".join(stream.feed(whole[i : i + 1]) for i in range(len(whole))) == TOKEN + DONE


def test_whole_events_leave_at_once():
    stream = EventStream(strip_usage=True)
    assert stream.feed(TOKEN + TOKEN[:10]) == TOKEN
    assert stream.feed(TOKEN[10:]) == TOKEN


def test_usage_beside_choices_is_read_and_kept():
    both = b'data: {"choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":3}}\n\n'
    stream = EventStream(strip_usage=True)
    assert stream.feed(both) == both
    assert stream.usage == {"prompt_tokens": 3}


def test_a_stream_without_a_last_boundary_loses_nothing():
    stream = EventStream(strip_usage=True)
    assert stream.feed(TOKEN + b"data: [DO") == TOKEN
    assert stream.close() == b"data: [DO"


def test_an_endless_event_is_not_hoarded():
    stream = EventStream(strip_usage=True, max_event_bytes=100)
    data = b"data: " + b"x" * 200
    assert stream.feed(data) == data
    assert stream.feed(USAGE) == USAGE


def test_a_malformed_usage_event_passes():
    bad = b'data: {"usage": {"prompt_tokens": }\n\n'
    assert EventStream(strip_usage=True).feed(bad) == bad
    assert orjson.loads(TOKEN[6:])["usage"] is None
