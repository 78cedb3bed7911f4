"""What must be so at rest: views equal to tables equal to what live workers hold."""

from collections.abc import Iterator

import numpy as np

from kvcompass.levels import registered_lengths
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.index_follower import FollowerState
from kvcompass.tier import Tier
from simulator.convergence.fleet import Fleet
from simulator.convergence.places import has_place


def differences(fleet: Fleet) -> Iterator[str]:
    """Copies that are unlike their originals, by digests."""
    for shard, node in enumerate(fleet.units):
        unit = node.unit
        if not unit.settled:
            yield f"unit-{shard} has not settled: it waits for {', '.join(unit.awaited_workers())}"
        for number, (worker, planned) in enumerate(zip(fleet.workers, fleet.shape.workers, strict=True)):
            if not has_place(fleet, number, fleet.unit_processes[shard]):
                continue
            wanted = (0, 0)
            if worker.engine.is_up and worker.followed is not None:
                kept = worker.followed.agent.holdings
                wanted = kept.count(shard), kept.digest(shard)
            held = (0, 0)
            if planned.table < node.tables.shape.tables:
                held = node.tables.held(planned.table, planned.slot)
            if held != wanted:
                yield f"unit-{shard} has {held[0]} keys of {planned.id}, it holds {wanted[0]}"
        for edge in fleet.edges:
            follower = edge.feeds[shard].follower
            name, state = edge.process.name, follower.state(fleet.now_us)
            if state is not FollowerState.EXACT:
                yield f"{name} is {state} of shard {shard}"
            at, where = (follower.unit_epoch, follower.applied_sequence), (unit.epoch, unit.sequence)
            if at != where:
                yield f"{name} follows shard {shard} at {at}, its unit is at {where}"
            elif follower.digest != unit.digest:
                yield f"{name} has another digest of shard {shard} at {at}"


def falsehoods(fleet: Fleet) -> Iterator[str]:
    """What anybody believes that is not so: agents of engines, units and views of agents. Costs a scan."""
    truths = [_truth(fleet, number) for number in range(len(fleet.workers))]
    for number, (_, wrong) in enumerate(truths):
        yield from (f"agent-{number} {what}" for what in wrong)
    claims = [claimed for claimed, _ in truths]
    workers = fleet.shape.workers
    for number, (planned, claimed) in enumerate(zip(workers, claims, strict=True)):
        if not all(has_place(fleet, number, process) for process in fleet.unit_processes):
            continue
        found: dict[int, int] = {}
        for node in fleet.units:
            if planned.table < node.tables.shape.tables:
                keys, tiers = node.tables.holdings(planned.table, planned.slot)
                found.update(zip(keys.tolist(), tiers.tolist(), strict=True))
        if found != claimed:
            yield f"units have {len(found)} keys of {planned.id}, it holds {len(claimed)}, or others"
    for table in range(fleet.shape.last_plan.tables):
        held = [claims[n] for n, planned in enumerate(workers) if planned.table == table]
        keys = np.array(sorted({key for claimed in held for key in claimed}), np.uint64)
        for edge in fleet.edges:
            assert edge.view is not None
            values = edge.view.lookup(keys)[:, table]
            for number, planned in enumerate(workers):
                if planned.table == table and has_place(fleet, number, edge.process):
                    fields = ((values >> np.uint64(2 * planned.slot)) & np.uint64(3)).tolist()
                    wanted = [int(claims[number].get(key, 0)) for key in keys.tolist()]
                    mistaken = sum(field != want for field, want in zip(fields, wanted, strict=True))
                    if mistaken:
                        yield f"{edge.process.name} is wrong about {mistaken} keys of {planned.id}"


def _truth(fleet: Fleet, number: int) -> tuple[dict[int, Tier], list[str]]:
    """What a worker's agent must claim of it, and what is wrong with what it claims."""
    worker = fleet.workers[number]
    if not worker.engine.is_up or worker.followed is None:
        return {}, []
    lengths = {int(length) for length in registered_lengths(fleet.shape.last_plan)}
    agent, truth = worker.followed.agent, worker.engine.truth(lengths)
    claimed: dict[int, Tier] = {}
    for shard in range(fleet.shape.plan.shards):
        keys, tiers = agent.told.report(shard)
        claimed.update(zip(keys.tolist(), map(Tier, tiers.tolist()), strict=True))
    wrong = []
    if agent.state is AgentState.EXACT:
        if claimed != truth:
            wrong.append(f"claims {len(claimed)} keys, and {len(truth)} are held, or not the same ones")
    elif agent.state is not AgentState.PARTIAL:
        wrong.append(f"is {agent.state.value}")
    elif any(key not in truth or truth[key] > tier for key, tier in claimed.items()):
        wrong.append("claims what is not held")
    return claimed, wrong
