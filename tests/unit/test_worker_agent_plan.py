"""An agent goes from one version of its plan to the next, whose lengths are others."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import EngineEvent
from kvcompass.keys.digest import holdings_digest
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.holdings import ShardEdits
from kvcompass.roles.worker_agent import WorkerAgent
from tests.models.agent_fleets import agent_plan
from tests.unit.test_holdings_twin import BLOCK, sensible_events

FIRST = agent_plan(block_size=BLOCK, quantum=BLOCK, context_length=16)


@st.composite
def plans(draw: st.DrawFn) -> list[Plan]:
    """Versions that differ in their rungs, and in how many prefixes a worker registers."""
    found = [FIRST]
    for _ in range(draw(st.integers(1, 3))):
        found.append(
            replace(
                found[-1],
                plan_version=found[-1].plan_version + 1,
                lengths=replace(FIRST.lengths, stretch=draw(st.sampled_from((0.3, 0.8, 1.4)))),
                model=replace(FIRST.model, context_length=draw(st.integers(6, 20))),
                index=replace(FIRST.index, worker_entries_max=draw(st.sampled_from((0, 0, 3, 6)))),
            )
        )
    return found


class Told:
    """What a unit of each shard has been told."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    def hear(self, edits: tuple[ShardEdits, ...]) -> None:
        for edit in edits:
            for key, tier in edit.tiers.items():
                assert self.held.get(key, 0) != tier, "an edit changes something"
                self.held[key] = tier
        self.held = {key: tier for key, tier in self.held.items() if tier}


def registered(agent: WorkerAgent) -> dict[int, int]:
    found = {}
    for shard in range(2):
        keys, tiers = agent.told.report(shard)
        found |= dict(zip(keys.tolist(), tiers.tolist(), strict=True))
        assert agent.holdings.digest(shard) == holdings_digest(keys, tiers)
        assert agent.holdings.count(shard) == len(keys)
    assert len(agent.holdings) == len(found)
    return found


@settings(deadline=None)
@given(plans(), st.data())
def test_an_agent_that_went_through_changes_registers_as_one_that_began_with_the_last(
    versions: list[Plan], data: st.DataObject
):
    agent, told = WorkerAgent(FIRST, "us-0", epoch=1), Told()
    agent.on_attached(replayed=True)
    heard: list[list[EngineEvent]] = []

    def engine_says() -> None:
        heard.append(data.draw(sensible_events()))
        told.hear(agent.on_batch(agent.applied + 1, heard[-1]))

    engine_says()
    for before, plan in itertools.pairwise(versions):
        told.hear(agent.apply_plan(plan))
        assert told.held == registered(agent)
        if agent.holdings.unregistered == 0:
            both = {*_of(before, heard).items(), *_of(plan, heard).items()}
            assert set(told.held.items()) >= both
        engine_says()
        assert told.held == registered(agent)
        told.hear(agent.settle_plan())
        assert told.held == registered(agent)
        assert agent.settle_plan() == ()
    if versions[-1].index.worker_entries_max == 0:
        assert told.held == _of(versions[-1], heard)
    else:
        assert len(told.held) <= versions[-1].index.worker_entries_max
        assert told.held.items() <= _of(replace(versions[-1], index=FIRST.index), heard).items()


def test_between_two_versions_the_lengths_of_both_are_registered():
    plan = replace(FIRST, plan_version=2, lengths=replace(FIRST.lengths, stretch=1.4))
    agent = WorkerAgent(FIRST, "us-0", epoch=1)
    agent.apply_plan(plan)
    lengths = set(registered_lengths(FIRST).tolist()) | set(registered_lengths(plan).tolist())
    assert lengths > set(registered_lengths(plan).tolist())
    assert set(agent.holdings._lengths) == lengths
    agent.settle_plan()
    assert agent.holdings._lengths == registered_lengths(plan).tolist()


def _of(plan: Plan, heard: list[list[EngineEvent]]) -> dict[int, int]:
    """What an agent that began with this plan has registered after the same."""
    fresh = WorkerAgent(plan, "us-0", epoch=1)
    fresh.on_attached(replayed=True)
    for batch in heard:
        fresh.on_batch(fresh.applied + 1, batch)
    return registered(fresh)
