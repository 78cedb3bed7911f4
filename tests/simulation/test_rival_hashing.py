"""Consistent hashing and Chord: what the prompt alone decides, and what finding it out costs."""

from collections import Counter
from itertools import pairwise

import numpy as np

from simulator.request import Request
from simulator.rivals.chord import CHORD, ring_key
from simulator.rivals.chord_nodes import ChordNodes, between
from simulator.rivals.consistent_hash import CONSISTENT_HASH
from simulator.rivals.random_choice import RANDOM
from tests.simulation.rival_runs import LOCAL_MS, PAGE, Run, ask, small_fleet, text

DOCUMENT = 1_024


def _documents(count: int, each: int, gap_ms: float) -> list[Request]:
    """Questions about documents, each asked in all regions in turn."""
    return [
        ask(i, gap_ms * i, i % 3, text(i % count, DOCUMENT), text(("question", i), 100))
        for i in range(count * each)
    ]


def test_consistent_hash_computes_each_of_many_equal_prefixes_once_in_the_world() -> None:
    run = Run(CONSISTENT_HASH, _documents(30, 6, 300.0))
    assert run.reused == 30 * 5 * DOCUMENT
    for document in range(30):
        assert len({run.workers[row] for row in range(document, 180, 30)}) == 1
    assert len(set(run.workers)) == 6


def test_consistent_hash_sends_a_popular_prefix_to_one_worker_whatever_its_queue() -> None:
    run = Run(CONSISTENT_HASH, _documents(1, 60, 2.0))
    assert len(set(run.workers)) == 1
    spread = Run(RANDOM, _documents(1, 60, 2.0))
    assert np.percentile(run.first_token_ms, 99) > 1.2 * np.percentile(spread.first_token_ms, 99)


def test_consistent_hash_crosses_an_ocean_for_a_prompt_that_nobody_shares() -> None:
    run = Run(CONSISTENT_HASH, [ask(i, 400.0 * i, 0, text(i, 130)) for i in range(90)])
    assert 0.5 < run.crossed < 0.8  # four of six workers are elsewhere


def test_a_cut_beyond_what_is_shared_scatters_a_family() -> None:
    """Level 1,024 covers 24 tokens that nobody shares; level 512 would have done."""
    family = [ask(i, 400.0 * i, 0, text("shared", 1_000), text(i, 24)) for i in range(24)]
    assert len(set(Run(CONSISTENT_HASH, family).workers)) == 6
    shorter = [ask(i, 400.0 * i, 0, text("shared", 1_000), text(i, 23)) for i in range(24)]
    assert len(set(Run(CONSISTENT_HASH, shorter).workers)) == 1


def test_chord_finds_who_owns_a_key() -> None:
    """The twin looks at all nodes: the owner is the first at or after the key, going round."""
    nodes = ChordNodes(16, 4)
    assert sorted(Counter(nodes.worker).values()) == [4] * 16
    hops = []
    for i in range(300):
        key = int(np.random.Generator(np.random.PCG64(i)).integers(0, 1 << 64, dtype=np.uint64))
        owner = min(range(64), key=lambda node: (nodes.ids[node] - key) % (1 << 64))
        at, count = i % 64, 0
        while (following := nodes.next_hop(at, key)) is not None:
            assert (key - nodes.ids[following]) % (1 << 64) < (key - nodes.ids[at]) % (1 << 64)
            at, count = following, count + 1
        assert (at + 1) % 64 == owner
        hops.append(count)
    assert max(hops) <= 2 * np.log2(64)
    assert 0.5 < np.mean(hops) / (0.5 * np.log2(64)) < 1.5  # Stoica et al., 6.4: half of log2 N on average


def test_the_arc_from_an_identifier_to_itself_is_the_whole_ring() -> None:
    assert between(5, 5, 5)
    assert between(7, 5, 5)
    assert between(2, (1 << 64) - 3, 4)
    assert not between(5, 5, 9)


def test_chord_pays_for_every_hop_on_the_links_between_its_nodes() -> None:
    """Asked one by one; the twin walks the finger tables with the plan's latencies."""
    requests = [ask(i, 5_000.0 * i, i % 3, text(i, 700)) for i in range(30)]
    run = Run(CHORD, requests)
    wan, regions = run.fleet.plan.wan_ms, run.regions
    nodes: ChordNodes = run.router.nodes
    at_node = run.router._doors
    walked = 0
    for request in requests:
        origin = request.region
        doors = at_node[origin]
        asked = sum(1 for earlier in requests[: request.id + 1] if earlier.region == origin)
        node = doors[asked % len(doors)]
        places = [origin, regions[nodes.worker[node]]]
        key = ring_key(request)
        while (following := nodes.next_hop(node, key)) is not None:
            node = following
            places.append(regions[nodes.worker[node]])
        owner = regions[run.workers[request.id]]
        assert run.workers[request.id] == nodes.worker[nodes.successor_of(key)]
        places += [origin, owner]
        expected_ms = sum(wan[a][b] for a, b in pairwise(places))
        took_us = run.column("submitted_us")[request.id] - run.column("arrived_us")[request.id]
        assert abs(took_us - 1000.0 * expected_ms) < len(places)
        walked += len(places) - 3
    assert walked > len(requests)


def test_chord_is_as_good_as_its_ring_where_hops_cost_little_and_late_where_they_do() -> None:
    requests = _documents(20, 4, 400.0)
    near = Run(CHORD, requests, small_fleet(wan_ms=LOCAL_MS))
    far = Run(CHORD, requests, small_fleet(wan_ms=100.0))
    assert near.reused == far.reused == 20 * 3 * DOCUMENT
    hashed = Run(CONSISTENT_HASH, requests, small_fleet(wan_ms=100.0))
    assert far.first_token_ms.mean() > hashed.first_token_ms.mean() + 100.0
    assert near.first_token_ms.mean() < far.first_token_ms.mean() - 200.0


def test_random_is_even_and_each_region_has_its_own_luck() -> None:
    requests = [ask(i, 60.0 * i, i % 3, text(i, PAGE)) for i in range(600)]
    run = Run(RANDOM, requests)
    counts = Counter(run.workers)
    assert all(60 < counts[worker] < 140 for worker in range(6))
    alone = Run(RANDOM, [ask(i, 60.0 * i, 0, text(i, PAGE)) for i in range(200)])
    assert [run.workers[row] for row in range(0, 600, 3)] == alone.workers
