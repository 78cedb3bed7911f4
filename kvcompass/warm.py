"""Compiling or loading every kernel before a service says that it is ready."""

import numpy as np

from kvcompass.fleet.load import LOAD_ROW
from kvcompass.fleet.view import KEPT_ROW
from kvcompass.index import IndexShape, IndexView, LookupUnit, ShardTables, WorkerMap
from kvcompass.kernels.loads import fold_loads, tell_loads
from kvcompass.kernels.queues import estimate_batches, estimate_queues
from kvcompass.levels import QueryPlan
from kvcompass.plan.model import RoutingRule
from kvcompass.score import JointScore, ScoreInputs, Standings


def warm(layout: str = "fingerprints", value_bits: int = 32) -> None:
    """Call every kernel of a layout once, with the types of production.

    About a minute on a machine's first call, else 0.5 s. A process whose kernels are not warm would stop for
    that long in the middle of its first requests.
    """
    shape = IndexShape(shards=1, tables=1, value_bits=value_bits, expected_entries=1, layout=layout)
    writer, view = ShardTables(shape, 0, random_seed=0), IndexView(shape)
    view.load_snapshot(0, writer.snapshot(), 0, writer.digest())
    keys = np.arange(64, dtype=np.uint64)
    edited = writer.edit(keys, 0, 0, np.ones(64, np.uint8))
    writer.clear_worker(0, 0)
    for patches in (edited, writer.step()):
        view.apply(0, view.applied_sequence(0) + 1, patches.groups, patches.payload)
    assert writer.growths
    writer.edit(keys, 0, 0, np.ones(64, np.uint8))
    writer.edit(keys[1:], 0, 0, np.zeros(63, np.uint8))
    while not writer.shrinks:
        writer.edit(keys[:1], 0, 0, np.ones(1, np.uint8))
        writer.step()
    writer.begin_report(0, 0)
    writer.edit(keys[1:2], 0, 0, np.ones(1, np.uint8))
    writer.end_report(0, 0)
    while writer.is_reporting(0, 0):
        writer.step()
    writer.holdings(0, 0)
    view.load_snapshot(0, writer.snapshot(), view.applied_sequence(0) + 1, writer.digest())
    view.lookup(keys)
    view.has_fields(0, 0, 0)
    query_plan = QueryPlan(
        rungs=np.array([1], np.int32),
        queried=np.ones((1, 1, 1), np.bool_),
        guard=np.full((1, 1), -1, np.int32),
    )
    place = WorkerMap(*(np.zeros(1, np.int32) for _ in range(3)))
    unit = LookupUnit(view, query_plan, place, 0)
    unit.match(keys[:1])
    score = JointScore(ScoreInputs(*np.ones((7, 1))), RoutingRule(), unit)
    score.match_and_weigh(keys[:1], None, Standings(*np.ones((3, 1), np.bool_)), prompt_tokens=1, turn=0)
    queue_ms, work_us = np.zeros(1), np.zeros(1, np.int64)
    estimate_queues(queue_ms, work_us, work_us, work_us, 0, queue_ms)
    rows, kept, standing = np.zeros(1, LOAD_ROW), np.zeros(1, KEPT_ROW), np.zeros(1, np.uint8)
    estimate_batches(queue_ms, kept, 0, 0, queue_ms)
    fold_loads(rows, work_us, 0, 0, True, kept, 0, work_us, queue_ms, queue_ms, queue_ms, standing)
    tell_loads(rows, work_us, work_us, 0, kept, 0, queue_ms)
