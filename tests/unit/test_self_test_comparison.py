"""The self-test's rule: it knows the probe in any traffic, and says truly whether and where readings part."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvcompass.self_test.comparison as comparison
import kvcompass.self_test.stored_chains as stored_chains
from kvcompass.engine_events import BlockStored
from kvcompass.self_test.comparison import compare
from kvcompass.self_test.probe import Rendering
from kvcompass.self_test.stored_chains import StoredChains
from kvcompass.self_test.verdict import Agreement, Cause, Difference, Unheard, Verdict
from tests.models.self_test_engines import Reading, StoringEngine, heard, reading

SEEDS = st.integers(0, 2**32)
PAGES = st.sampled_from([1, 2, 4, 8, 16, 32])


def any_page(page: int) -> bool:
    return True


def judged(
    edge: Reading,
    events: Sequence[BlockStored],
    *,
    prompt_tokens: int | None = None,
    salt: str = "pepper",
    page_fits: Callable[[int], bool] = any_page,
) -> Verdict:
    chains = heard(events).chains(len(edge.tokens) + 64)
    return compare(edge.rendering, chains, page_fits=page_fits, salt=salt, prompt_tokens=prompt_tokens)


def traffic(random: Random, engine: StoringEngine, edge: Reading) -> list[BlockStored]:
    """Other users' prompts, of the same template; each is shorter or longer than the probe by a block."""
    events = []
    for _ in range(random.randint(0, 5)):
        other = reading(random, opening=len(edge.joints[0]), turns=random.randint(1, 5))
        tokens = [*edge.joints[0], *other.tokens]
        if abs(len(tokens) - len(edge.tokens)) > 2 * engine.page:
            events += engine.take(tokens)
    return events


def shuffled(random: Random, one: list[BlockStored], other: list[BlockStored]) -> list[BlockStored]:
    """Both, each in its order."""
    picks = [True] * len(one) + [False] * len(other)
    random.shuffle(picks)
    return [one.pop(0) if pick else other.pop(0) for pick in picks]


@given(SEEDS, PAGES, st.integers(0, 40))
def test_equal_readings_agree_in_any_traffic_and_however_events_are_cut(
    seed: int, page: int, opening: int
) -> None:
    random = Random(seed)
    edge, engine = reading(random, opening=opening), StoringEngine(page, random)
    before = traffic(random, engine, edge)
    probe = engine.take([*edge.tokens, *(random.randrange(1_000) for _ in range(random.randint(0, 1)))])
    after = traffic(random, engine, edge)
    told_before = before if random.random() < 0.5 else []  # else nobody listened yet: openings are cached
    events = told_before + shuffled(random, probe, after)
    events += random.sample(events, random.randint(0, len(events)))  # told again, as replays do
    told = len(edge.tokens) if random.random() < 0.5 else None
    assert judged(edge, events, prompt_tokens=told) == Agreement(len(edge.tokens) // page * page)


@given(SEEDS, PAGES)
def test_a_block_that_was_not_heard_is_no_difference(seed: int, page: int) -> None:
    random = Random(seed)
    edge, engine = reading(random), StoringEngine(page, random, joined=1)
    events = engine.take(edge.tokens)
    # Blocks before the text without its first tokens may be others' too: nobody misses them.
    opening = (len(edge.joints[0]) + comparison._JOINED_TOKENS) // page
    events.pop(random.randrange(opening, len(events)))
    assert isinstance(judged(edge, events), Unheard)


@given(SEEDS, PAGES, st.integers(0, 20))
def test_another_joint_is_the_template_and_is_found_where_it_is(seed: int, page: int, opening: int) -> None:
    random = Random(seed)
    edge = reading(random, opening=opening)
    changeable = [(joint, at) for joint, tokens in enumerate(edge.joints[:-1]) for at in range(len(tokens))]
    joint, at = random.choice(changeable)
    other = list(edge.joints[joint])
    other[at] += 100
    joints = (*edge.joints[:joint], tuple(other), *edge.joints[joint + 1 :])
    drifted = replace(edge, joints=joints)
    position = next(
        i for i, pair in enumerate(zip(edge.tokens, drifted.tokens, strict=True)) if len(set(pair)) == 2
    )
    engine = StoringEngine(page, random)
    found = judged(edge, shuffled(random, engine.take(drifted.tokens), traffic(random, engine, edge)))
    if position >= len(edge.tokens) // page * page:
        assert isinstance(found, Agreement)
        return
    assert isinstance(found, Difference)
    assert (found.cause, found.position) == (Cause.CHAT_TEMPLATE, position)
    marked = position - found.shown_from
    assert found.expected[marked] == edge.tokens[position]
    assert found.observed[marked] == drifted.tokens[position]
    assert found.expected[:marked] == found.observed[:marked]


@given(SEEDS, PAGES, st.integers(1, 3))
def test_a_template_that_makes_other_tokens_of_the_first_letters_is_no_tokenizer(
    seed: int, page: int, joined: int
) -> None:
    random = Random(seed)
    edge = reading(random, opening=3)
    opening = tuple(token + 100 for token in edge.joints[0])
    first = (*(token + 40_000 for token in edge.texts[0][:joined]), *edge.texts[0][joined:])
    drifted = replace(edge, joints=(opening, *edge.joints[1:]), texts=(first, *edge.texts[1:]))
    found = judged(edge, StoringEngine(page, random).take(drifted.tokens), prompt_tokens=len(drifted.tokens))
    assert isinstance(found, Difference)
    assert (found.cause, found.position) == (Cause.CHAT_TEMPLATE, 0)


@given(SEEDS, PAGES, st.integers(-20, 20).filter(bool), st.integers(20, 40))
def test_tokens_more_or_fewer_before_all_are_a_mark_or_another_template(
    seed: int, page: int, more: int, opening: int
) -> None:
    random = Random(seed)
    edge = reading(random, opening=opening)
    first = edge.joints[0]
    opened = (*(200 + i for i in range(more)), *first) if more > 0 else first[-more:]
    drifted = replace(edge, joints=(opened, *edge.joints[1:]))
    found = judged(edge, StoringEngine(page, random).take(drifted.tokens), prompt_tokens=len(drifted.tokens))
    assert isinstance(found, Difference)
    assert found.cause is (Cause.BOS if abs(more) <= 2 else Cause.CHAT_TEMPLATE)
    assert f"{abs(more)} {'more' if more > 0 else 'fewer'}" in found.detail


@given(SEEDS, st.sampled_from([4, 8, 16]), st.integers(1, 2))
def test_a_mark_before_an_opening_that_is_cached_shows_by_where_blocks_are_cut(
    seed: int, page: int, more: int
) -> None:
    random = Random(seed)
    edge = reading(random, opening=2 * page)
    drifted = replace(edge, joints=((*(200 + i for i in range(more)), *edge.joints[0]), *edge.joints[1:]))
    engine = StoringEngine(page, random)
    engine.take(drifted.tokens[: 2 * page])
    found = judged(edge, engine.take(drifted.tokens), prompt_tokens=len(drifted.tokens))
    assert isinstance(found, Difference)
    assert found.cause is Cause.BOS


@given(SEEDS, PAGES)
def test_other_ids_of_the_same_texts_are_the_tokenizer(seed: int, page: int) -> None:
    random = Random(seed)
    edge, engine = reading(random), StoringEngine(page, random)
    drifted = replace(edge, texts=tuple(tuple(token + 1 for token in text) for text in edge.texts))
    events = shuffled(random, engine.take(drifted.tokens), traffic(random, engine, edge))
    found = judged(edge, events, prompt_tokens=len(drifted.tokens))
    assert isinstance(found, Difference)
    assert found.cause is Cause.TOKENIZER
    assert found.position == len(edge.joints[0])
    twin = engine.take([token + 5_000 for token in drifted.tokens])
    assert judged(edge, events + twin, prompt_tokens=len(drifted.tokens)) is Unheard.AMBIGUOUS


@given(SEEDS, PAGES)
def test_one_piece_of_the_text_read_otherwise_is_the_tokenizer(seed: int, page: int) -> None:
    random = Random(seed)
    edge, engine = reading(random), StoringEngine(page, random)
    at = random.randrange(8, len(edge.texts[0]) - 2)
    text = (*edge.texts[0][:at], 40_000, 40_001, *edge.texts[0][at + 1 :])
    drifted = replace(edge, texts=(text, *edge.texts[1:]))
    events = shuffled(random, engine.take(drifted.tokens), traffic(random, engine, edge))
    found = judged(edge, events, prompt_tokens=len(drifted.tokens))
    assert isinstance(found, Difference)
    assert (found.cause, found.position) == (Cause.TOKENIZER, len(edge.joints[0]) + at)


@given(SEEDS, PAGES)
def test_traffic_alone_is_not_the_probe(seed: int, page: int) -> None:
    random = Random(seed)
    edge, engine = reading(random), StoringEngine(page, random)
    assert judged(edge, traffic(random, engine, edge)) is Unheard.NOTHING


@pytest.mark.parametrize(
    ("scope", "cause", "says"),
    [
        ("", None, ""),
        ("pepper", None, ""),
        ("salt", Cause.SCOPE, "a salt that is not its sharing group's"),
        ("adapter:sql\0", Cause.SCOPE, "adapter sql"),
        ("adapter:sql\0pepper", Cause.SCOPE, "adapter sql and a salt"),
    ],
)
def test_blocks_under_a_scope_that_no_edge_looks_under_are_refused(
    scope: str, cause: Cause | None, says: str
) -> None:
    random = Random(1)
    edge = reading(random)
    found = judged(edge, StoringEngine(8, random, scope=scope).take(edge.tokens))
    if cause is None:
        assert isinstance(found, Agreement)
    else:
        assert isinstance(found, Difference)
        assert found.cause is cause
        assert says in found.detail


def test_blocks_of_a_size_that_does_not_fit_are_refused() -> None:
    random = Random(1)
    edge = reading(random)
    events = StoringEngine(8, random).take(edge.tokens)
    found = judged(edge, events, page_fits=lambda page: page == 16)
    assert isinstance(found, Difference)
    assert found.cause is Cause.BLOCK_SIZE


def test_the_end_of_a_prompt_that_no_block_holds_is_told_and_refuses_nobody() -> None:
    random = Random(1)
    edge = reading(random, opening=3, text=40, turns=3)
    assert len(edge.tokens) % 16 == 7
    longer = [*edge.tokens, 5, 6]
    found = judged(edge, StoringEngine(16, random).take(longer), prompt_tokens=len(longer))
    assert found == Agreement(len(edge.tokens) // 16 * 16, tail=2)


def test_what_is_kept_of_a_listening_is_bounded_and_the_oldest_goes() -> None:
    random = Random(1)
    chains, engine = StoredChains(blocks_most=8), StoringEngine(2, random, joined=1)
    old, new = engine.take(range(100, 110)), engine.take(range(200, 216))
    chains.hear([*old, *new])
    assert (chains.blocks, chains.overflowed) == (8, True)
    assert [chain.tokens.tolist() for chain in chains.chains(100)] == [list(range(200, 216))]
    assert chains.chains(15) == []


def test_what_is_kept_is_bounded_in_tokens_too() -> None:
    random = Random(1)
    chains, engine = StoredChains(tokens_most=64), StoringEngine(16, random)
    chains.hear(engine.take(range(64)))
    assert not chains.overflowed
    chains.hear(engine.take(range(1_000, 1_032)))
    assert (chains.blocks, chains.overflowed) == (4, True)


def test_one_look_walks_a_bounded_number_of_blocks_and_sees_the_newest() -> None:
    """A long conversation that thousands of others share, in blocks of one token."""
    tokens = np.arange(1, dtype=np.int32)
    chains = StoredChains()
    trunk = [BlockStored((name,), name - 1 or None, tokens, 1, "GPU", "") for name in range(1, 2_001)]
    twigs = [BlockStored((10_000 + twig,), 2_000, tokens, 1, "GPU", "") for twig in range(10_000)]
    chains.hear([*trunk, *twigs])
    assert not chains.overflowed
    newest = BlockStored((99_999,), None, tokens + 7, 1, "GPU", "")
    chains.hear([newest])
    found = chains.chains(4_096)
    assert found[0].tokens.tolist() == [7]
    assert sum(len(chain.tokens) for chain in found) < 5 * stored_chains.BLOCKS_MOST
    assert chains.overflowed


@pytest.mark.parametrize(("read", "page"), [(0, 16), (10, 16), (64, 16), (64, 1), (64, 64), (7, 1)])
def test_an_edge_that_reads_next_to_nothing_of_a_long_prompt_does_not_agree(read: int, page: int) -> None:
    edge = reading(Random(1), text=240)
    engine = StoringEngine(page, Random(2))
    short = Rendering(np.array(edge.tokens[:read], dtype=np.int32), ())
    chains = heard(engine.take(edge.tokens)).chains(4_096)
    found = compare(short, chains, page_fits=any_page, salt="", prompt_tokens=len(edge.tokens))
    assert not isinstance(found, Agreement)


def test_blocks_that_name_one_another_as_parents_end_nowhere() -> None:
    random = Random(1)
    event = StoringEngine(2, random).take([1, 2])[0]
    chains = StoredChains()
    chains.hear([BlockStored((7,), 8, event.tokens, 2, "GPU"), BlockStored((8,), 7, event.tokens, 2, "GPU")])
    chains.hear([BlockStored((9,), 8, event.tokens, 2, "GPU")])
    assert chains.chains(1_000) == []
