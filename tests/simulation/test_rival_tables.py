"""What rivals share: names of chunks, tables of holders, trees of what was routed, rings."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import BlockRemoved, BlockStored
from kvcompass.engine_model import BlockNames, EngineConfig
from kvcompass.engine_model.token_chain import TokenChain
from simulator.errors import SimulationError
from simulator.rivals.active_blocks import ActiveBlocks
from simulator.rivals.block_holders import BlockHolders
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.hash_ring import HashRing
from simulator.rivals.holder_masks import Depth, depths, workers_of
from simulator.rivals.lagged_holders import Change, LaggedHolders
from simulator.rivals.level_keys import LEVELS, placement_key
from simulator.rivals.registry import RIVALS
from simulator.rivals.routed_prefixes import RoutedPrefixes
from tests.simulation.rival_runs import PAGE, Run, ask, small_fleet, text

WORKERS = 3


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_chunks_have_the_same_name_exactly_where_all_up_to_their_end_is_the_same(
    one: list[int], other: list[int], chunk: int
) -> None:
    first, second = (chunk_names(np.array(tokens, np.int32), chunk) for tokens in (one, other))
    assert (len(first), len(second)) == (len(one) // chunk, len(other) // chunk)
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        end = (index + 1) * chunk
        assert (a == b) == (one[:end] == other[:end])
    assert len(set(first)) == len(first)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 9))
def test_a_prompt_named_in_parts_has_the_names_of_the_whole(head: int, tail: int, chunk: int) -> None:
    prompt = text("parts", (head + tail) * chunk)
    whole = chunk_names(prompt, chunk)
    before = chunk_names(prompt[: head * chunk], chunk)
    parent = before[-1:] or [0]
    assert before + chunk_names(prompt[head * chunk :], chunk, parent[0]) == whole


def test_engines_of_different_page_sizes_cannot_be_compared() -> None:
    fleet = small_fleet()
    object.__setattr__(fleet, "engines", (EngineConfig(page_size=16), *fleet.engines[1:]))
    with pytest.raises(SimulationError, match="page size"):
        page_size_of(fleet)


@given(st.lists(st.integers(0, (1 << 2 * WORKERS) - 1), max_size=8))
def test_a_worker_holds_a_prompt_as_far_as_it_has_every_block_in_some_tier(masks: list[int]) -> None:
    expected = {}
    for worker in range(WORKERS):
        vram = [mask >> worker & 1 for mask in masks]
        dram = [mask >> (worker + WORKERS) & 1 for mask in masks]
        any_tier = next(
            (i for i, held in enumerate(zip(vram, dram, strict=True)) if not any(held)), len(masks)
        )
        if any_tier:
            in_vram = next((i for i, held in enumerate(vram) if not held), len(masks))
            expected[worker] = Depth(min(in_vram, any_tier), any_tier)
    assert depths(iter(masks), WORKERS) == expected


def _stored(blocks: list[int], medium: str) -> BlockStored:
    """A chain from the first token on; block n holds n."""
    tokens = np.array(blocks, np.int32)
    return BlockStored(tuple(f"{b}".encode() for b in blocks), None, tokens, 1, medium)


REGION_OF = (0, 0, 1)
CHAIN = [7, 8, 9]
NAMES = chunk_names(np.array(CHAIN, np.int32), 1)


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[str, int, int, str]]:
    kinds = st.sampled_from(["store", "remove", "tell", "hear"])
    media = st.sampled_from(["GPU", "CPU_PINNED"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 2), st.integers(1, 3), media), max_size=40))


@given(_histories())
@settings(max_examples=200)
def test_regions_read_one_table_as_if_each_kept_its_own(history: list[tuple[str, int, int, str]]) -> None:
    """The twin has a table a region, changed by copies of all that its own workers say and others tell."""
    regions = 3
    lagged = LaggedHolders(WORKERS, regions)
    twins = [dict.fromkeys(NAMES, 0) for _ in range(regions)]
    untold: list[list[tuple[int, int, bool]]] = [[] for _ in range(regions)]
    way: list[list[tuple[Change | None, list[tuple[int, int, bool]]]]] = [[] for _ in range(regions)]
    held = {(worker, medium): 0 for worker in range(WORKERS) for medium in ("GPU", "CPU_PINNED")}

    def turn(table: dict[int, int], edits: list[tuple[int, int, bool]]) -> None:
        for name, bit, on in edits:
            table[name] = table[name] | bit if on else table[name] & ~bit

    for kind, worker, count, medium in history:
        region = REGION_OF[worker] if kind in ("store", "remove") else worker
        bit = 1 << (worker + WORKERS * (medium == "CPU_PINNED"))
        if kind == "store":
            lagged.apply(region, worker, [_stored(CHAIN[:count], medium)])
            held[worker, medium] = max(held[worker, medium], count)
            edits = [(name, bit, True) for name in NAMES[:count]]
        elif kind == "remove":
            gone = (
                CHAIN[held[worker, medium] - count : held[worker, medium]]
                if held[worker, medium] >= count
                else []
            )
            if gone:
                names = tuple(f"{b}".encode() for b in reversed(gone))
                lagged.apply(region, worker, [BlockRemoved(names, medium)])
                held[worker, medium] -= count
            edits = [(NAMES[CHAIN.index(b)], bit, False) for b in gone]
        elif kind == "tell":
            change = lagged.tell(region)
            told, untold[region] = untold[region], []
            for other in range(regions):
                if other != region:
                    way[other].append((change, told))
            continue
        else:
            if way[region]:
                change, told = way[region].pop(0)
                if change is not None:
                    lagged.heard(region, change)
                turn(twins[region], told)
            continue
        untold[region] += edits
        turn(twins[region], edits)
        for at in range(regions):
            assert list(lagged.masks(at, NAMES)) == [twins[at][name] for name in NAMES]
    for at in range(regions):
        assert list(lagged.masks(at, NAMES)) == [twins[at][name] for name in NAMES]


@pytest.mark.parametrize("names", list(BlockNames))
def test_holders_know_what_engines_hold_by_whatever_names(names: BlockNames) -> None:
    """Engines too small for all they are asked, with a DRAM tier: events and caches agree at the end."""
    engine = EngineConfig(
        page_size=PAGE, cache_tokens=40 * PAGE, host_cache_tokens=60 * PAGE, block_names=names
    )
    prompts = [np.concatenate((text(i % 3, 5 * PAGE), text(("own", i), 4 * PAGE))) for i in range(40)]
    requests = [ask(i, 400 * i, i % 3, prompt) for i, prompt in enumerate(prompts)]
    run = Run(RIVALS["clairvoyant"], requests, small_fleet(engine))
    holders: BlockHolders = run.router._holders
    evicted = 0
    for prompt in prompts:
        found = depths(holders.masks(chunk_names(prompt, PAGE)), run.fleet.workers)
        for worker in range(run.fleet.workers):
            cache = run.world.hosts[worker].engine.cache
            held = cache.match(TokenChain(prompt, PAGE), 9)
            assert found.get(worker, Depth(0, 0)).any_tier == held
            evicted += held < 9
    assert evicted


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(1, 3)), max_size=30))
def test_what_was_routed_is_kept_like_a_tree_with_the_least_recent_leaves_cut(
    routed: list[tuple[int, int, int]],
) -> None:
    """The twin looks at each place by itself and cuts its least recently used prefix that none continues."""
    tree = RoutedPrefixes(3, 1)
    tree._most = 5
    twins: list[OrderedDict[tuple[int, ...], None]] = [OrderedDict() for _ in range(3)]
    for place, family, depth in routed:
        prompt = (family, *range(depth - 1))
        tree.insert(chunk_names(np.array(prompt, np.int32), 1), place)
        twin = twins[place]
        for end in range(depth, 0, -1):
            twin[prompt[:end]] = None
            twin.move_to_end(prompt[:end])
        while len(twin) > 5:
            leaves = [p for p in twin if not any(q[: len(p)] == p and q != p for q in twin)]
            del twin[leaves[0]]
    for family in range(5):
        prompt = (family, 0, 1)
        names = chunk_names(np.array(prompt, np.int32), 1)
        has = [next((i for i in range(3) if prompt[: i + 1] not in twin), 3) for twin in twins]
        longest, holders = tree.match(names, 0b111)
        assert longest == max(has)
        assert list(workers_of(holders)) == [i for i in range(3) if has[i] >= longest]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 4)), max_size=12))
def test_a_block_that_several_prompts_use_counts_once_until_the_last_has_left(
    prompts: list[tuple[int, int, int]],
) -> None:
    blocks = ActiveBlocks(3)
    under_way = [(w, chunk_names(np.array([f, *range(d - 1)], np.int32), 1)) for w, f, d in prompts]
    for worker, names in under_way:
        blocks.add(names, worker)
    while under_way:
        for worker in range(3):
            users = [names for w, names in under_way if w == worker]
            assert blocks.distinct(worker) == len({name for names in users for name in names})
            for _, names in under_way:
                shared = max((sum(a == b for a, b in zip(names, u, strict=False)) for u in users), default=0)
                assert blocks.shared(names).get(worker, 0) == shared
        worker, names = under_way.pop(0)
        blocks.remove(names, worker)
    assert not blocks._table


def test_a_ring_moves_keys_only_to_the_worker_that_joins() -> None:
    small, large = HashRing(6, 32), HashRing(7, 32)
    keys = [placement_key(text(i, 200))[1] for i in range(400)]
    moved = [key for key in keys if small.owner(key) != large.owner(key)]
    assert {large.owner(key) for key in moved} == {6}
    assert 0 < len(moved) < len(keys) / 3
    for key in keys[:50]:
        order = list(small.owners(key))
        assert sorted(order) == list(range(6))
        assert order[0] == small.owner(key)


def test_the_longest_level_that_a_prompt_fills_places_it() -> None:
    shared = text("shared", LEVELS[-1])
    for index, level in enumerate(LEVELS):
        one = placement_key(np.concatenate((shared[:level], text("a", level // 2))))
        other = placement_key(np.concatenate((shared[:level], text("b", level - 1))))
        assert one == other
        assert one[0] == index
        assert placement_key(np.concatenate((shared[: level - 1], text("c", 2))))[1] != one[1]
    short = text("short", LEVELS[0] - 1)
    assert placement_key(short)[0] == 0
    assert placement_key(short) != placement_key(short[:-1])
