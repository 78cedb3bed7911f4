"""Content of recorded workloads: blocks by id, sessions without ids, names, texts, remote-only prefixes."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.streams import random_stream
from simulator.workloads.remote_only import first_turn_prefixes, remote_only
from simulator.workloads.text_tokens import encode_pieces
from simulator.workloads.tokens import TokenSource
from simulator.workloads.traces.blocks import BlockContent
from simulator.workloads.traces.plain import _named
from simulator.workloads.traces.sessions import Sessions

BLOCK = 4


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6), st.integers(0, 3), st.integers(0, 9))
def test_equal_ids_are_equal_blocks_and_others_differ_in_every_token(
    ids: list[int], short: int, seed: int
) -> None:
    content, tokens = BlockContent(BLOCK), TokenSource(seed)
    length = BLOCK * len(ids) - short
    prompt = content.prompt(ids, length, tokens)
    assert prompt.size == length
    assert prompt.dtype == np.int32
    assert prompt.min() >= 0
    assert np.array_equal(prompt, content.prompt(ids, length, TokenSource(seed + 1)))
    other = content.prompt([(one + 1) % 2**31 for one in ids], length, tokens)
    assert (other != prompt).all()


def test_what_has_no_id_is_fresh() -> None:
    content, tokens = BlockContent(BLOCK), TokenSource(1)
    first, again = (content.prompt([7], BLOCK + 2, tokens) for _ in range(2))
    assert np.array_equal(first[:BLOCK], again[:BLOCK])
    assert first[BLOCK] != again[BLOCK]


Asked = tuple[int, list[int], int, int]
"""Time, ids, tokens of the prompt and of the answer."""


def naive_root(number: int, asked: list[Asked], roots: list[int]) -> int:
    """The rule, word by word: the longest of those that this one goes on from, and of these the latest."""
    at_us, ids, prompt, _ = asked[number]
    candidates = []
    for earlier in range(number):
        then_us, then_ids, then_prompt, then_answer = asked[earlier]
        full = then_prompt // BLOCK
        if full < 2 or then_us >= at_us or then_prompt + then_answer > prompt:
            continue
        if ids[: prompt // BLOCK][:full] == then_ids[:full]:
            candidates.append((full, earlier))
    return roots[max(candidates)[1]] if candidates else number


@pytest.mark.parametrize("seed", range(30))
def test_sessions_are_followed_as_by_the_rule(seed: int) -> None:
    """Prompts are paths in a small tree, whose ids name all before them, as in the trace."""
    stream = random_stream(seed, "test")
    ids_of: dict[tuple[int, ...], int] = {}
    asked: list[Asked] = []
    at_us = 0
    for _ in range(120):
        path = tuple(stream.randrange(2) for _ in range(stream.randrange(1, 7)))
        ids = [ids_of.setdefault(path[: i + 1], len(ids_of)) for i in range(len(path))]
        at_us += stream.randrange(3)
        asked.append((at_us, ids, BLOCK * len(ids) - stream.randrange(BLOCK), stream.randrange(6)))
    roots: list[int] = []
    sessions = Sessions(BLOCK)
    for number, (then_us, ids, prompt, answer) in enumerate(asked):
        expected = naive_root(number, asked, roots)
        roots.append(sessions.root(number, then_us, ids, prompt, answer))
        assert roots[-1] == expected
    assert 0 < sum(root != number for number, root in enumerate(roots)) < 120


def test_sessions_forget_what_is_long_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.workloads.traces.sessions._REMEMBERED", 2)
    sessions = Sessions(BLOCK)
    for number, first in enumerate((10, 20, 30)):
        assert sessions.root(number, number, [first, first + 1], 2 * BLOCK, 0) == number
    assert sessions.root(3, 9, [10, 11, 12], 3 * BLOCK, 0) == 3
    assert sessions.root(4, 9, [30, 31, 32], 3 * BLOCK, 0) == 2


def test_a_shorter_piece_of_a_named_text_begins_the_longer_one() -> None:
    assert np.array_equal(_named("a", 64), _named("a", 4_096)[:64])
    assert not np.array_equal(_named("a", 64), _named("b", 64))


@given(st.text(), st.text(), st.text())
def test_texts_that_begin_alike_have_tokens_that_begin_alike(shared: str, one: str, other: str) -> None:
    alone, first, second = (encode_pieces(text) for text in (shared, shared + one, shared + other))
    # Only the last pieces of the shared beginning may be cut otherwise: a space goes with what follows it.
    kept = max(0, alone.size - 2)
    assert np.array_equal(first[:kept], alone[:kept])
    assert np.array_equal(second[:kept], alone[:kept])


ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Halves of characters included, which JSON can spell."""


@given(ANY_TEXT)
def test_no_character_of_a_text_is_lost(text: str) -> None:
    assert (encode_pieces(text).size > 0) == bool(text)
    assert encode_pieces(text).size <= len(text)


def test_about_four_characters_of_english_are_a_token() -> None:
    text = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
    assert 3 < len(text) / encode_pieces(text).size < 5


def test_a_prefix_is_remote_where_only_others_have_asked_for_it() -> None:
    prefixes = [1, 2, 1, 1, 3, 2]
    everywhere_one = remote_only(prefixes, [0.0, 1.0, 0.0])
    assert (everywhere_one.cold, everywhere_one.hits) == (3, 3)
    assert (everywhere_one.remote_share, everywhere_one.shared_volume) == (0.0, 0.0)
    # A prefix that is asked for twice is remote the second time unless both fall into one region: 1 - 1/4.
    twice = remote_only([*range(2_000), *range(2_000)], [1.0] * 4)
    assert twice.remote_share == pytest.approx(0.75, abs=0.02)
    assert twice.shared_volume == pytest.approx(twice.remote_share)
    assert twice.spread[0] <= twice.remote_share <= twice.spread[1]


def test_only_first_turns_of_a_prefixs_length_are_counted(tmp_path: Path) -> None:
    rows = [
        (0, 1_100, [0, 1, 2]),
        (1, 900, [0, 3]),
        (2, 1_700, [0, 1, 5, 6]),  # goes on from the first
        (2, 1_024, [0, 1]),  # as long as the first one's blocks, and no longer than its prompt and answer
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "\n".join(
            json.dumps({"timestamp": at, "input_length": n, "output_length": 50, "hash_ids": ids})
            for at, n, ids in rows
        ),
        "utf-8",
    )
    assert first_turn_prefixes(path) == [1, 1]
    assert first_turn_prefixes(path, sessions=False) == [1, 1, 1]
