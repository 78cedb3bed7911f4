"""The edge role over a real index: what a worker registers decides where the next request goes."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.index import IndexView, LookupUnit, ShardTables, WorkerMap, index_shape
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels import query_plan, registered_lengths
from kvcompass.roles.edge import EdgeRole
from kvcompass.routing import Decision, Reason
from kvcompass.tier import Tier
from tests.models.routing_fleets import SECOND, load, make_plan

NOW_US = 100 * SECOND
PROMPT = np.arange(8_000, dtype=np.int32)
EU_1 = 3


def keys_at(lengths: NDArray[np.int32], tokens: int) -> NDArray[np.uint64]:
    return prefix_keys(namespace(make_plan().model, "default"), PROMPT, lengths[lengths <= tokens])


def test_holding_demoting_and_evicting_each_change_the_decision() -> None:
    plan = make_plan()
    shape = index_shape(plan)
    unit, view = ShardTables(shape, 0, random_seed=1), IndexView(shape)
    view.load_snapshot(0, unit.snapshot(), 0, unit.digest())
    lookup = LookupUnit(view, query_plan(plan), WorkerMap.of_plan(plan), plan.region_index("us"))
    role = EdgeRole(plan, "edge-us-0", lookup, epoch=1)
    for worker, worker_id in enumerate(role.fleet.worker_ids):
        role.fleet.report(worker, load(worker_id), NOW_US)

    registered = keys_at(registered_lengths(plan), len(PROMPT))
    asked = keys_at(query_plan(plan).rungs, len(PROMPT) - 1)
    sequence = 0

    def decide_after(tier: Tier) -> Decision:
        nonlocal sequence
        place = plan.workers[EU_1]
        patches = unit.edit(registered, place.table, place.slot, np.full(len(registered), tier, np.uint8))
        assert not view.apply(0, sequence + 1, patches.groups, patches.payload).gap
        sequence += patches.groups
        decision = role.decide(len(PROMPT), asked, "default", NOW_US)
        assert isinstance(decision, Decision)
        return decision

    held = decide_after(Tier.VRAM)
    assert (held.worker_id, held.tier, held.reason) == ("eu-1", Tier.VRAM, Reason.LONGEST_MATCH_REMOTE)
    assert held.match_tokens == registered_lengths(plan)[len(asked) - 1]
    demoted = decide_after(Tier.DRAM)
    assert (demoted.worker_id, demoted.tier) == ("eu-1", Tier.DRAM)
    assert demoted.score_ms > held.score_ms
    evicted = decide_after(Tier.NONE)
    assert (evicted.region, evicted.match_tokens, evicted.reason) == ("us", 0, Reason.NO_MATCH)
